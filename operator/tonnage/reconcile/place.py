"""Which pool the replicas run on, and when they stay where they are.

A running replica is worth more than a better place. So a placement is kept as long as what it was
chosen for has not changed (`placed_for`) and its replicas are scheduled; one whose replicas wait
for GPUs of their pool is given up only after `placement.fallback.after`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tonnage.api.conditions import ConditionType
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError, parse_duration
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.model import FleetSnapshot, Pool
from tonnage.fleet.pools import build_pools
from tonnage.placement.decide import decide
from tonnage.placement.model import Decision, Option, Request
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.actions import digest
from tonnage.reconcile.children import ChildDeployment, ChildPod, parse_time
from tonnage.reconcile.observe import Observation

_MISFITS: Final = frozenset(
    {
        RejectedReason.KV_CACHE_DOES_NOT_FIT,
        RejectedReason.OVERHEAD_DOES_NOT_FIT,
        RejectedReason.WEIGHTS_DO_NOT_FIT,
        RejectedReason.ILLEGAL_PARALLELISM,
        RejectedReason.INCOMPATIBLE,
    }
)
"""What no GPU that becomes free can mend."""

_LONGEST_WAIT_SECONDS: Final = 100 * 365 * 24 * 3600.0
"""A longer `fallback.after` is as good as never; the calendar ends before the longest one."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The replicas belong on `option`; `granted` of them have GPUs there."""

    decision: Decision
    option: Option
    granted: int


@dataclass(frozen=True, slots=True)
class Held:
    """The replicas wait for their pool, which cannot take them now and says why.

    Another pool is taken at `until`; None: those that run there stay.
    """

    decision: Decision
    current: ChildDeployment
    why: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No pool can carry even one replica; the decision says why."""

    decision: Decision


def place(
    observation: Observation,
    accepted: Accepted,
    fleet: FleetSnapshot,
    catalog: Catalog,
    now: datetime,
) -> Placed | Held | Unplaced:
    """Judge every pool and settle where the replicas belong."""
    tolerations = accepted.spec.template.spec.tolerations
    pools = build_pools(fleet, catalog, excluding=observation.owner, tolerations=tolerations)
    current = _current(observation, pools)
    decision = _decide(observation, accepted, pools, catalog, current)
    chosen = decision.chosen
    if current is not None and (chosen is None or chosen.pool.name != current.pool):
        held = _hold(observation, accepted.spec, current, decision, now)
        if held is not None:
            return held
    if chosen is None:
        return Unplaced(decision)
    return Placed(decision, chosen, min(chosen.replicas, chosen.room))


def placed_for(spec: InferenceDeploymentSpec) -> str:
    """Digest of what a place is chosen for: what memory needs, and the user's say in the choice.

    Not in it: what may change while the pods stay where they are (replicas, concurrency, typical
    lengths, further arguments, template).
    """
    vllm = spec.engine.vllm
    return digest(
        {
            "source": spec.model.source.to_dict(),
            "maxModelLen": spec.workload.max_model_len,
            "kvCacheDtype": spec.kv_cache_dtype,
            "quantization": spec.quantization,
            "engine": [
                vllm.version,
                vllm.gpu_memory_utilization,
                vllm.max_num_seqs,
                vllm.max_num_batched_tokens,
                vllm.enforce_eager,
            ],
            "placement": spec.placement.model_dump(mode="json", exclude={"fallback"}),
        }
    )


def scheduled(pods: Iterable[ChildPod], placement: str) -> list[ChildPod]:
    """Pods of the placement that hold GPUs of a node and are to stay."""
    return [pod for pod in pods if pod.placement == placement and pod.node and not pod.deleting]


def serving_deployment(observation: Observation) -> ChildDeployment | None:
    """The Deployment that carries the replicas: the newest that was placed for this very wish."""
    if isinstance(observation.spec, InvalidSpecError):
        return None
    wanted = placed_for(observation.spec)
    matching = [found for found in observation.deployments if found.placed_for == wanted]
    return max(matching, key=lambda found: found.created, default=None)


def _current(observation: Observation, pools: Iterable[Pool]) -> ChildDeployment | None:
    """The serving Deployment, and the pool that its replicas run in by now."""
    newest = serving_deployment(observation)
    return replace(newest, pool=_pool_now(newest, observation.pods, pools)) if newest else None


def _pool_now(current: ChildDeployment, pods: Iterable[ChildPod], pools: Iterable[Pool]) -> str:
    """The pool that the replicas run in. Its nodes may be in one of another name since: a platform
    team has declared it, or has deleted a declared one."""
    nodes = {pod.node for pod in scheduled(pods, current.placement)}
    runs_on = {
        pool.name: sum(node.name in nodes for node in pool.nodes)
        for pool in pools
        if pool.accelerator is not None and pool.accelerator.id == current.placement
    }
    if not any(runs_on.values()) or runs_on.get(current.pool):
        return current.pool
    return max(runs_on, key=lambda name: runs_on[name])


def _decide(
    observation: Observation,
    accepted: Accepted,
    pools: Sequence[Pool],
    catalog: Catalog,
    current: ChildDeployment | None,
) -> Decision:
    request = Request(
        owner=observation.owner,
        spec=accepted.spec,
        checkpoint=accepted.checkpoint,
        keep=(current.pool, current.parallelism) if current else None,
        held=_count_held(observation.pods, current) if current else 0,
    )
    return decide(request, pools, catalog)


def _count_held(pods: Iterable[ChildPod], current: ChildDeployment) -> int:
    """Replicas that have their GPUs; a pod of an older split has those of another replica."""
    mine = scheduled(pods, current.placement)
    return sum(pod.gpus == current.parallelism.gpus for pod in mine)


def _hold(
    observation: Observation,
    spec: InferenceDeploymentSpec,
    current: ChildDeployment,
    decision: Decision,
    now: datetime,
) -> Held | None:
    """Whether the replicas of a pool that cannot take them stay there, or still wait for it.

    While any of them is scheduled they stay, for the pool may only have vanished from sight, unless
    the pool is too small for what is asked of them by now.
    """
    verdict = next((one for one in decision.candidates if one.pool.name == current.pool), None)
    why = verdict.message if verdict else "none of its nodes is there"
    running = bool(scheduled(observation.pods, current.placement))
    misfit = verdict is not None and verdict.reason in _MISFITS
    if running and not misfit:
        return Held(decision, current, why, None)
    if misfit and decision.chosen is None:
        return None
    since = _misfit_since(observation, now) if running else _waiting_since(observation, current)
    after = min(parse_duration(spec.placement.fallback.after), _LONGEST_WAIT_SECONDS)
    until = since + timedelta(seconds=after)
    return Held(decision, current, why, until) if until > now else None


def _waiting_since(observation: Observation, current: ChildDeployment) -> datetime:
    pods = (pod.created for pod in observation.pods if pod.placement == current.placement)
    return min(pods, default=current.created)


def _misfit_since(observation: Observation, now: datetime) -> datetime:
    """When the replicas were first said to have no place; the pods that run do not tell."""
    for found in observation.previous_status.get("conditions") or []:
        if found.get("type") == ConditionType.PLACED and found.get("status") == "False":
            return parse_time(found["lastTransitionTime"])
    return now
