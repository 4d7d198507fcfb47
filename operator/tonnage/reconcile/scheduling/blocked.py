"""Replicas that cannot come: no GPUs are reserved for them, until they can.

The API server refuses their pods (a quota, an admission policy, a missing ServiceAccount), the
scheduler finds no node for another reason than GPUs (CPU, disk, a volume), the scheduler that they
name does not try them, or their pods are bound to a node that was deleted. Their Deployments stay
as they are, so that the pods come by themselves once the cause is gone; the next reconcile then
reserves their GPUs again.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

from tonnage import delays
from tonnage.api.conditions import ConditionType
from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.api.parse import InvalidSpecError
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool, Reservation
from tonnage.reconcile.actions import Action, Apply
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.pods.scheduler_message import read_verdict
from tonnage.reconcile.observation.previous import read_since
from tonnage.workloads.registry import WORKLOAD_KINDS


def without_blocked(
    reservations: Iterable[Reservation],
    observation: Observation,
    fleet: Fleet,
    now: datetime,
    actions: Iterable[Action] = (),
) -> tuple[Reservation, ...]:
    """The reservations without replicas that cannot come.

    Where the `actions` of the plan replace the pods of a Deployment, what is known of the present
    pods does not apply to the next ones.
    """
    replaced = _find_new_templates(actions, observation)
    live = {
        deployment.placement: deployment
        for deployment in observation.deployments
        if deployment.observed and deployment.child.name not in replaced
    }
    if not live:
        return tuple(reservations)
    blocked = find_blocked(observation, fleet, now)
    return tuple(
        _reduce(reservation, live[reservation.placement], observation.pods, blocked)
        if reservation.placement in live
        else reservation
        for reservation in reservations
    )


def _find_new_templates(actions: Iterable[Action], observation: Observation) -> frozenset[str]:
    """The Deployments that get another pod template by these actions."""
    live = {deployment.child.name: deployment.template for deployment in observation.deployments}
    applied = (
        action.body["metadata"]
        for action in actions
        if isinstance(action, Apply) and action.kind in WORKLOAD_KINDS
    )
    return frozenset(
        metadata["name"]
        for metadata in applied
        if metadata["annotations"].get(ANNOTATION_TEMPLATE) != live.get(metadata["name"])
    )


def find_blocked(observation: Observation, fleet: Fleet, now: datetime) -> frozenset[str]:
    """The names of pods that cannot come, or whose node is gone, for long enough."""
    pools = cache(lambda: _pools_of_placements(observation, fleet))  # few objects have such pods
    placed_since = read_since(observation.previous_status, ConditionType.PLACED, "True")
    unready_since = read_since(observation.previous_status, ConditionType.READY, "False")

    def is_blocked(pod: ChildPod) -> bool:
        if pod.lost:
            return _is_over(unready_since, delays.LOST, now)
        if pod.node is not None or not _is_over(pod.waits_since, delays.UNSCHEDULABLE, now):
            return False
        if pod.unschedulable is None:
            return pod.held_back is not None
        pool = pools().get(pod.placement)
        was_placed = _is_over(placed_since, delays.UNSCHEDULABLE, now)
        return pool is not None and _has_other_cause(pod.unschedulable, pool, was_placed=was_placed)

    return frozenset(pod.name for pod in observation.pods if not pod.deleting and is_blocked(pod))


def next_blocked_at(observation: Observation, now: datetime) -> datetime | None:
    """When a pod that waits now has waited long enough; None where none will."""
    times = (at for pod in observation.pods for at in _times_of(pod, observation) if at > now)
    return min(times, default=None)


def _times_of(pod: ChildPod, observation: Observation) -> Iterator[datetime]:
    if pod.lost:
        since = read_since(observation.previous_status, ConditionType.READY, "False")
        yield (since or observation.created) + timedelta(seconds=delays.LOST)
    elif pod.waits_since is not None and pod.node is None and not pod.deleting:
        yield pod.waits_since + timedelta(seconds=delays.UNSCHEDULABLE)


def _has_other_cause(message: str, pool: Pool, *, was_placed: bool) -> bool:
    """Whether a usable node of the pool does not take the pod though it has GPUs, or no node would
    even with GPUs.

    Where the scheduler names nothing but nodes that do not suit at all, they may have become usable
    just now; if the operator has seen capacity for all replicas for long (`was_placed`), it is
    another cause, such as a node selector that a webhook added.
    """
    verdict, usable = read_verdict(message, pool.resource), pool.nodes.counts.usable
    if verdict.lacking_more:
        return verdict.lacking_gpus < usable or verdict.lacking_more >= usable > 0
    return was_placed and verdict.lacking_gpus == 0 and usable > 0


def _reduce(
    reservation: Reservation,
    deployment: ChildDeployment,
    pods: Iterable[ChildPod],
    blocked: Collection[str],
) -> Reservation:
    """The reservation of the replicas that can come. Where the API server refuses pods, these are
    the ones that exist."""
    pods = [pod for pod in pods if pod.placement == deployment.placement and not pod.deleting]
    staying = {pod.replica for pod in pods}
    to_come = 0 if deployment.refused is not None else reservation.replicas - len(staying)
    can_come = len(staying - {pod.replica for pod in pods if pod.name in blocked})
    can_come += max(0, to_come)
    return replace(reservation, replicas=max(0, min(reservation.replicas, can_come)))


def _pools_of_placements(observation: Observation, fleet: Fleet) -> dict[str, Pool]:
    spec = observation.spec
    tolerations = () if isinstance(spec, InvalidSpecError) else spec.tolerations
    by_name = {pool.name: pool for pool in fleet.pools(tolerations=tolerations)}
    return {
        deployment.placement: by_name[deployment.pool]
        for deployment in observation.deployments
        if deployment.pool in by_name
    }


def _is_over(since: datetime | None, seconds: float, now: datetime) -> bool:
    return since is not None and now - since >= timedelta(seconds=seconds)
