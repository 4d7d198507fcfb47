"""One search for a placement: what is asked of package placement, and on which pools.

The operator judges running replicas by the memory corrections known when it placed them. So no
correction ever moves or restarts them, whatever its origin, and their memory prediction stays the
same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tonnage.api.inference import DEFAULT_ENGINE
from tonnage.catalog.catalog import Catalog
from tonnage.fit.calibration.corrections import (
    CorrectionKey,
    Corrections,
    MemoryCorrection,
    Origin,
)
from tonnage.fit.engines.registry import memory_for, options_for
from tonnage.fit.model import Parallelism
from tonnage.fit.questions.measured import served_by
from tonnage.fleet.model import Pool
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.decide import decide
from tonnage.placement.model import Decision, Option, PlacedFor, Request, RunningSecondary
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.observation.attempts import failed_pools, starts_without_memory
from tonnage.reconcile.observation.child_pods import ChildPod, find_scheduled_pods
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.serving import pool_now
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.placed_for import find_placed_for
from tonnage.workloads.compute_domain import has_channel


@dataclass(frozen=True, slots=True)
class Search:
    """One search for a placement. `pools` have the free capacity for this object. `bound`: the
    replicas do not leave a pool that the spec still leads to. `secondary` are the Deployments next
    to the first one."""

    context: ReconcileContext
    pools: Sequence[Pool]
    bound: bool
    secondary: tuple[ChildDeployment, ...] = ()

    @property
    def pods(self) -> tuple[ChildPod, ...]:
        """The pods of the object."""
        return self.context.observation.pods

    def decide(self, request: Request) -> Decision:
        """Judge every pool for the request."""
        catalog, cache = self.context.catalog, self.context.dependencies.placement_cache
        decision = decide(request, self.pools, catalog, cache)
        if decision.chosen is None and request.failed_pools:  # one of them is better than none
            return decide(replace(request, failed_pools={}), self.pools, catalog, cache)
        return decision

    @property
    def failed_pools(self) -> Mapping[str, str]:
        """Pools where the replicas did not come up; none where the plan that served last can take
        over instead (`rollback`)."""
        attempts = self.context.attempts
        if attempts.last_ready is not None:
            served = attempts.last_ready.placement.name
            if any(one.placement == served for one in self.context.observation.deployments):
                return {}
        return failed_pools(attempts)

    def lost(self, placement: str) -> list[ChildPod]:
        """Scheduled pods of the placement that are not ready, on nodes whose kubelet is silent."""
        fleet = self.context.fleet
        pods = find_scheduled_pods(self.pods, placement)
        return [pod for pod in pods if not pod.ready and fleet.is_silent(pod.node or "")]

    def held_up(self, current: ChildDeployment) -> list[ChildPod]:
        """Pods of groups that are being deleted and that a silent kubelet does not end. Unlike with
        a Deployment, nothing replaces a group before that."""
        if current.parallelism.nodes == 1:
            return []
        fleet = self.context.fleet
        return [
            pod
            for pod in self.pods
            if pod.placement == current.placement
            and pod.deleting
            and pod.node is not None
            and fleet.pool_of(pod.node) is not None  # else it is deleted, and its pods are, too
            and fleet.is_silent(pod.node)
        ]

    def has_failed(self, option: Option) -> bool:
        """Whether replicas failed to start there; no replica migrates there by choice again."""
        return self.context.attempts.have_failed_on(option.pool.name, option.parallelism)

    def runs(self, placement: str) -> bool:
        """Whether any scheduled pod of the placement is not lost."""
        return len(find_scheduled_pods(self.pods, placement)) > len(self.lost(placement))


def make_request(
    search: Search,
    keep: tuple[str, Parallelism] | None = None,
    held: int = 0,
    adjustments: EngineAdjustments = UNADJUSTED,
    known: Corrections | None = None,
    placed_for: PlacedFor | None = None,
    engine: str = DEFAULT_ENGINE,
) -> Request:
    """The request for a placement; `keep` is the pool and the parallelism of what runs, `engine`
    what it runs with."""
    context, corrections = search.context, search.context.corrections
    return Request(
        owner=context.observation.key,
        spec=context.spec,
        checkpoint=context.accepted.checkpoint,
        keep=keep,
        held=held,
        failed_starts=starts_without_memory(context.attempts, search.pools),
        demanded=context.accepted.demanded,
        kept_adjustments=adjustments,
        corrections=corrections,
        kept_corrections=corrections if known is None else known,
        secondary=tuple(
            RunningSecondary(
                one.pool,
                one.parallelism,
                count_held(search.pods, one),
                one.adjustments,
                find_placed_for(context, one),
                one.engine,
            )
            for one in search.secondary
        ),
        failed_pools=search.failed_pools,
        placed_for=placed_for,
        quotas=context.own_quotas(),
        pods=context.replica_pods(),
        has_leader_worker_set=context.observation.has_leader_worker_set,
        has_compute_domains=context.observation.has_compute_domains,
        channel_pools=_find_channel_pools(search),
        kept_engine=engine,
        refused_engines=context.accepted.refused_engines,
    )


def _find_channel_pools(search: Search) -> frozenset[str]:
    """The pools, by the name they have now, whose replicas claim channels of a ComputeDomain."""
    return frozenset(
        with_current_pool(search, deployment).pool
        for deployment in search.context.observation.deployments
        if has_channel(deployment.pod_template)
    )


def with_current_pool(search: Search, deployment: ChildDeployment) -> ChildDeployment:
    """The Deployment with the name that the pool of its nodes has now."""
    pool = pool_now(deployment, search.pods, search.pools, search.context.fleet)
    return deployment if pool == deployment.pool else replace(deployment, pool=pool)


def known_to_running(search: Search, current: ChildDeployment) -> Corrections:
    """The corrections by which all running placements were chosen."""
    context = search.context
    known = context.corrections
    for deployment in (current, *search.secondary):
        known = _known_when_placed(deployment, context.accepted, known, context.catalog)
    return known


def _known_when_placed(
    current: ChildDeployment, accepted: Accepted, known: Corrections, catalog: Catalog
) -> Corrections:
    """The `known` corrections, but for the replicas' own plan the one known when it was chosen."""
    if not known.entries and not current.correction_bytes:
        return known
    spec = accepted.spec.with_engine(current.engine)
    options = options_for(spec, catalog)
    served = served_by(memory_for(spec), accepted.checkpoint.shape, options, catalog)
    parallelism = current.parallelism
    key = CorrectionKey(
        served,
        current.accelerator,
        parallelism.tensor,
        parallelism.pipeline,
        parallelism.data,
    )
    others, latest = known.without(key), known.find(key)
    if not current.correction_bytes:
        return others
    if latest is not None and latest.extra_bytes == current.correction_bytes:
        return known
    # FAILURE is the more careful origin.
    when_placed = MemoryCorrection(key, current.correction_bytes, Origin.FAILURE)
    return Corrections((*others.entries, when_placed))


def count_held(pods: Iterable[ChildPod], current: ChildDeployment) -> int:
    """Replicas that have their GPUs, on all of their nodes; a pod of an older parallelism holds
    those of another replica."""
    own, footprint = find_scheduled_pods(pods, current.placement), current.parallelism.footprint
    return sum(pod.gpus == footprint.gpus_per_node for pod in own) // footprint.nodes
