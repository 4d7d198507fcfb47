"""Read the plan that served last from the status, and find it in the cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.api.status import LastReadyPlan
from tonnage.kube.protocol import Object
from tonnage.placement.report import read_parallelism
from tonnage.reconcile.observation.children import ChildDeployment, is_controlled_by
from tonnage.reconcile.observation.plan_terms import read_terms
from tonnage.reconcile.observation.previous import read_reported
from tonnage.reconcile.observation.template_record import as_rendered


def read_last_ready(status: Mapping[str, Any]) -> LastReadyPlan | None:
    """The plan that served last, by a status."""
    return read_reported(LastReadyPlan, status.get("lastReadyPlan"))


def is_running(last: LastReadyPlan, deployment: ChildDeployment) -> bool:
    """Whether the Deployment has the template of the plan that served last, unedited."""
    return deployment.template == last.template and _has_terms(last, deployment.child.body)


def needs_revisions(status: Mapping[str, Any], deployments: Iterable[ChildDeployment]) -> bool:
    """Whether the template that served last has to be searched for among old ReplicaSets: by this
    status plans have failed since, and no Deployment has it."""
    if not status.get("failedPlans"):
        return False
    last = read_last_ready(status)
    return last is not None and not any(is_running(last, deployment) for deployment in deployments)


def find_revision(
    last: LastReadyPlan, live: ChildDeployment, revisions: Iterable[Object]
) -> Object | None:
    """The ReplicaSet of the Deployment that has the template of the plan; None where none has it.

    The Deployment controller copies the operator's annotations to it. A ReplicaSet that comes from
    a user's edit of the Deployment has them too, so its terms are compared as well.
    """
    return next(
        (
            revision
            for revision in revisions
            if (revision["metadata"].get("annotations") or {}).get(ANNOTATION_TEMPLATE)
            == last.template
            and is_controlled_by(revision, live.child.uid)
            and _has_terms(last, revision)
        ),
        None,
    )


def _has_terms(last: LastReadyPlan, body: Object) -> bool:
    placement = last.placement
    parallelism = read_parallelism(placement)
    terms = read_terms(placement.pool, placement.accelerator, parallelism, as_rendered(body))
    return terms.hash == last.hash
