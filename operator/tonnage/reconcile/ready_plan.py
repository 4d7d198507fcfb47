"""The plan that served last, as status keeps it, and where in the cluster it is found again."""

from collections.abc import Iterable, Mapping
from typing import Any

from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.api.status import LastReadyPlan
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Object
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.reported import read_reported
from tonnage.reconcile.terms import read_terms


def read_last_ready(status: Mapping[str, Any]) -> LastReadyPlan | None:
    """The plan that served last, by a status."""
    return read_reported(LastReadyPlan, status.get("lastReadyPlan"))


def runs(last: LastReadyPlan, deployment: ChildDeployment) -> bool:
    """Whether the Deployment has the template of the plan that served last, untouched."""
    return deployment.template == last.template and _has_terms(last, deployment.child.body)


def needs_revisions(status: Mapping[str, Any], deployments: Iterable[ChildDeployment]) -> bool:
    """Whether the last template that served has to be looked for among old ReplicaSets: plans have
    failed since, by this status, and no Deployment has it."""
    if not status.get("failedPlans"):
        return False
    last = read_last_ready(status)
    return last is not None and not any(runs(last, found) for found in deployments)


def find_revision(
    last: LastReadyPlan, live: ChildDeployment, revisions: Iterable[Object]
) -> Object | None:
    """The ReplicaSet of the Deployment that has the template of the plan; None where none has it.

    The Deployment controller copies our annotations to it. One that was made by somebody's own edit
    of the Deployment has them too, so what it runs is compared as well.
    """
    return next(
        (
            found
            for found in revisions
            if (found["metadata"].get("annotations") or {}).get(ANNOTATION_TEMPLATE)
            == last.template
            and _is_of(live, found)
            and _has_terms(last, found)
        ),
        None,
    )


def _has_terms(last: LastReadyPlan, body: Object) -> bool:
    placement = last.placement
    split = Parallelism(placement.tensor_parallel_size, placement.pipeline_parallel_size)
    return read_terms(placement.pool, placement.accelerator, split, body).hash == last.hash


def _is_of(live: ChildDeployment, revision: Object) -> bool:
    owners = revision["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == live.child.uid for owner in owners)
