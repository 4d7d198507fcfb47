"""When to reconcile an object again for what no watch reports."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from tonnage import delays
from tonnage.reconcile.observation.deadline import overdue_at
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.pod_reports import unready_since, waits_for_creation


def next_report_at(observation: Observation, now: datetime) -> datetime | None:
    """When there may be more to say about pods that do not come up; None where all are ready."""
    return min((at for at in _times(observation, now) if at > now), default=None)


def _times(observation: Observation, now: datetime) -> Iterator[datetime]:
    if all(deployment.ready >= deployment.wanted for deployment in observation.deployments):
        return
    pause = timedelta(seconds=delays.POD_REPORTS)
    since = unready_since(observation.previous_status, observation.deployments)
    yield (since or now) + pause
    if observation.reports.failed or any(map(waits_for_creation, observation.pods)):
        yield now + pause
    for deployment in observation.deployments:
        at = overdue_at(observation, deployment)
        if at is not None:
            yield at
