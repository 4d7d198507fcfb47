"""Whether replicas have not come up for longer than the progress deadline of their Deployment.

The Deployment controller keeps that clock for a rollout. It restarts it at each pod that replaces a
failed one, and has none for a Deployment that has served once. So the operator keeps it as well: it
starts when the object was ready last, or when the first of its pods that are not ready got a node.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.pod_reports import unready_since

_DEFAULT_SECONDS: Final = 600
"""progressDeadlineSeconds of a Deployment that has none."""


def deadline_of(deployment: ChildDeployment) -> timedelta:
    """Its progress deadline."""
    spec = deployment.child.body["spec"]
    return timedelta(seconds=spec.get("progressDeadlineSeconds", _DEFAULT_SECONDS))


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
    return at is not None and (deployment.overdue or now >= at)


def _starts(observation: Observation, placement: str) -> Iterator[datetime]:
    """When the pods of the placement that are not ready got their nodes, and the failed ones were
    created."""
    for pod in observation.pods:
        is_trying = pod.node is not None and not pod.ready and not pod.deleting
        if pod.placement == placement and is_trying:
            yield pod.scheduled or pod.created
    for failed in observation.reports.failed:
        if failed.placement == placement:
            yield failed.created
