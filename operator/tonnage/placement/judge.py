"""One pool judged: compatible, legal, large enough, with room now? One candidate comes out."""

from collections.abc import Sequence

from tonnage.api.inference import TightFit
from tonnage.catalog.catalog import Catalog
from tonnage.fit.options import engine_options
from tonnage.fleet.model import Pool
from tonnage.placement.messages import tell_fit, tell_no_room
from tonnage.placement.model import Candidate, Option, Request, Verdict
from tonnage.placement.pricing import price_per_gpu_hour
from tonnage.placement.ranking import rank
from tonnage.placement.reasons import ChosenReason, RejectedReason
from tonnage.placement.screening import Devices, Rejection, screen_pool
from tonnage.placement.sizing import Size, size_replicas


class PoolJudge:
    """Judges the pools for one request; those with the same devices are sized once.

    Raises fit.options.InvalidOptionError for engine settings that cannot be.
    """

    def __init__(self, request: Request, catalog: Catalog) -> None:
        self._request = request
        self._catalog = catalog
        self._options = engine_options(request.spec, catalog)
        self._sized: dict[Devices, Sequence[Size] | Rejection] = {}

    def judge(self, pool: Pool) -> Candidate:
        """What the pool can do for the request by itself: Feasible with its best option, or
        Rejected. One that fits and has no room is rejected with its option, so that its split can
        be told."""
        devices = screen_pool(self._request.spec.placement, pool)
        sizes = devices if isinstance(devices, Rejection) else self._size(devices)
        if isinstance(sizes, Rejection):
            return Candidate(
                pool, Verdict.REJECTED, sizes.reason, sizes.message, shortage=sizes.shortage
            )
        return _judge_sizes(self._request, pool, sizes)

    def _size(self, devices: Devices) -> Sequence[Size] | Rejection:
        if devices not in self._sized:
            self._sized[devices] = size_replicas(
                self._request, devices, self._options, self._catalog
            )
        return self._sized[devices]


def keeps_its_place(request: Request, option: Option) -> bool:
    """Whether the replicas run on this very option now and can stay there."""
    if request.keep != (option.pool.name, option.parallelism):
        return False
    return option.room > 0 or option.replicas == 0


def _judge_sizes(request: Request, pool: Pool, sizes: Sequence[Size]) -> Candidate:
    """The best of the splits that fit: where the replicas run now, else by the policy."""
    policy = request.spec.placement.policy
    options = [_make_option(request, pool, size) for size in sizes]
    kept = next((option for option in options if keeps_its_place(request, option)), None)
    best = kept or min(options, key=lambda option: rank(option, policy))
    if best.room > 0 or best.replicas == 0:
        reason = ChosenReason(policy.value)
        return Candidate(pool, Verdict.FEASIBLE, reason, tell_fit(best), best)
    usable = any(node.unusable is None for node in pool.nodes)
    lacking = RejectedReason.INSUFFICIENT_GPUS if usable else RejectedReason.NO_USABLE_NODES
    return Candidate(pool, Verdict.REJECTED, lacking, tell_no_room(best), best)


def _make_option(request: Request, pool: Pool, size: Size) -> Option:
    price, source = price_per_gpu_hour(pool)
    gpus = size.parallelism.gpus
    room = pool.room_for(gpus)
    if request.keep == (pool.name, size.parallelism):
        room = max(room, request.held)
    return Option(
        pool=pool,
        parallelism=size.parallelism,
        fit=size.fit,
        replicas=size.replicas,
        room=room,
        cost_per_hour=None if price is None else price * gpus * size.replicas,
        price_source=source,
        estimate=size.estimate,
        price_per_gpu_hour=price,
        notes=size.notes,
        overridden=tuple(refusal.rule for refusal in size.compatibility.overridden),
        settings=size.compatibility.settings,
        avoided=size.fit.tight and request.spec.placement.tight_fit is TightFit.AVOID,
    )
