"""Whether replicas have not come up for longer than the progress deadline of their Deployment, and
when to reconcile them again for what no watch reports.

The Deployment controller keeps that clock for a rollout. It restarts it at each pod that replaces a
failed one, and has none after a rollout is complete, be it with zero replicas; the controller of
LeaderWorkerSets keeps none. So the operator keeps it as well: it starts when the object was ready
last, or when the first of its pods that are not ready got a node.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from tonnage import delays
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.pods.reports import unready_since
from tonnage.workloads.registry import workload_kind_of


def deadline_of(deployment: ChildDeployment) -> timedelta:
    """Its progress deadline."""
    body = deployment.child.body
    seconds = workload_kind_of(body).deadline_seconds(body)
    return timedelta(seconds=delays.PROGRESS_DEADLINE if seconds is None else seconds)


def overdue_at(observation: Observation, deployment: ChildDeployment) -> datetime | None:
    """When its replicas will not have come up for that long; None while none of them is trying."""
    since = unready_since(observation.previous_status, [deployment])
    starts = list(_starts(observation, deployment.placement))
    if since is None or not starts:
        return None
    return max(since, min(starts)) + deadline_of(deployment)


def is_overdue(observation: Observation, deployment: ChildDeployment, now: datetime) -> bool:
    """Whether replicas that got a node have not come up for that long. One that waits for a node
    is not trying."""
    at = overdue_at(observation, deployment)
    return at is not None and (bool(deployment.overdue) or now >= at)


def is_unready_for_long(
    observation: Observation, deployment: ChildDeployment, now: datetime
) -> bool:
    """The same for replicas without a node, or without pods."""
    if deployment.overdue is not None:
        return deployment.overdue
    since = unready_since(observation.previous_status, [deployment])
    return since is not None and now >= since + deadline_of(deployment)


def _starts(observation: Observation, placement: str) -> Iterator[datetime]:
    """When the pods of the placement that are not ready got their nodes, and the failed ones of
    the same templates were created."""
    pods = [pod for pod in observation.pods if pod.placement == placement]
    for pod in pods:
        is_trying = pod.node is not None and not pod.ready and not pod.deleting
        if is_trying:
            yield pod.scheduled or pod.created
    templates = {pod.template for pod in pods}
    for failed in observation.reports.failed:
        if failed.placement == placement and (not templates or failed.template in templates):
            yield failed.created


def next_report_at(observation: Observation, now: datetime) -> datetime | None:
    """When there may be more to say about pods that do not come up; None where all are ready."""
    if all(deployment.serves(deployment.wanted) for deployment in observation.deployments):
        return None
    overdue = (overdue_at(observation, deployment) for deployment in observation.deployments)
    times = [at for at in overdue if at is not None and at > now]
    return min((*times, now + timedelta(seconds=delays.POD_REPORTS)))
