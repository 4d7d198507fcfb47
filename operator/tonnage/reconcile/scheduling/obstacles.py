"""What keeps all pods of a placement from coming, where pods of another pool may come.

The API server refuses them (the quota of a vendor, Pod Security), or the scheduler finds no node
for another reason than GPUs (CPU, disk). Such a pool counts as failed once this has lasted for
`placement.fallback.after`. What hits every pool alike (a quota of CPU, a missing ServiceAccount, a
volume that does not exist) does not make the replicas leave: they would only go from pool to pool.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tonnage.api.conditions import Reason
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.reconcile.observation.attempts import Fault
from tonnage.reconcile.observation.children import ChildDeployment, ChildPod
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.pods.failures import PodFailure
from tonnage.reconcile.observation.pods.refusal import exceeded_resources, refuses_every_pool
from tonnage.reconcile.observation.pods.scheduler_message import read_verdict
from tonnage.reconcile.observation.serving import failure_to_serve
from tonnage.reconcile.scheduling.blocked import find_blocked


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no pod comes, and since when. `resource` names the GPUs whose quota is exceeded, if that
    is why, so that no pool with such GPUs helps."""

    fault: Fault
    since: datetime
    resource: str | None


def find_obstacle(
    observation: Observation,
    deployment: ChildDeployment,
    pool: Pool,
    fleet: Fleet,
    now: datetime,
) -> Obstacle | None:
    """The obstacle of a Deployment in this pool; None where any pod has come, or may come, or
    would come nowhere else."""
    if deployment.completed or deployment.ready or not deployment.observed:
        return None
    pods = [
        pod
        for pod in observation.pods
        if pod.placement == deployment.placement and not pod.deleting
    ]
    failure = failure_to_serve(observation, deployment.placement)
    if failure is None or any(pod.node is not None for pod in pods):
        return None
    since = _obstructed_since(failure, deployment, pods, pool)
    if since is None:
        return None
    if failure.reason is Reason.UNSCHEDULABLE:
        blocked = find_blocked(observation, fleet, now)
        if any(pod.name not in blocked for pod in pods):
            return None
    fault = Fault(failure.reason, failure.words)
    is_quota = pool.resource in exceeded_resources(failure.words)
    return Obstacle(fault, max(since, deployment.since), pool.resource if is_quota else None)


def _obstructed_since(
    failure: PodFailure, deployment: ChildDeployment, pods: Iterable[ChildPod], pool: Pool
) -> datetime | None:
    if failure.reason is Reason.CHILD_REFUSED:
        refused_since = deployment.refused_since or deployment.since
        return None if refuses_every_pool(failure.words, pool.resource) else refused_since
    if failure.reason is Reason.UNSCHEDULABLE and read_verdict(failure.words, pool.resource).counts:
        return min((pod.waits_since for pod in pods if pod.waits_since is not None), default=None)
    return None
