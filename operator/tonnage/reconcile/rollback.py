"""Rollback: which plan runs again where the one that is wanted has failed.

The last plan that served is found again on its own Deployment: it runs there still (another pool
failed), or Kubernetes keeps its template in an old ReplicaSet. Nothing of it has to be rendered
anew, for nobody knows the spec that it came from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.names import ANNOTATION_RENDERED, ANNOTATION_TEMPLATE, GROUP
from tonnage.api.status import FailedPlan, LastReadyPlan
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Apply, Scale, stamped
from tonnage.reconcile.approval import terms_in_force
from tonnage.reconcile.children import TEMPLATE_LABEL, ChildDeployment
from tonnage.reconcile.context import ReconcileContext
from tonnage.reconcile.key import Key
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.ready_plan import find_revision, runs
from tonnage.reconcile.rollout import find_deployment
from tonnage.reconcile.scaling import asked_beside
from tonnage.reconcile.serving import newest
from tonnage.reconcile.terms import Terms
from tonnage.render.metadata import own_labels

_KEPT: Final = ("selector", "strategy", "progressDeadlineSeconds", "revisionHistoryLimit")
"""Fields of a Deployment's spec that the operator renders, beside what is told apart here."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """The replicas run by `last`, since `failed` did not come up.

    `live` is the Deployment that carries them, `revision` the ReplicaSet with the template that it
    has to be given for that; None where it has it. `replicas` have room of those that are `asked`
    for (None: as many as served then).
    """

    last: LastReadyPlan
    failed: FailedPlan
    live: ChildDeployment
    revision: Object | None
    replicas: int
    asked: int | None = None

    @property
    def wanted(self) -> int:
        """Replicas that there are to be, with room for them or without."""
        return self.last.placement.replicas if self.asked is None else self.asked

    @property
    def is_complete(self) -> bool:
        """Whether all of them run by it again."""
        live = self.settled
        return live is not None and live.serves(self.replicas)

    @property
    def body(self) -> Object:
        """The Deployment as it is to be."""
        if not self._is_to_be_written:
            return self.live.child.body
        return stamped(restate(self.live, self.replicas, self.revision))

    @property
    def settled(self) -> ChildDeployment | None:
        """The Deployment, where it has the template already."""
        return self.live if self.revision is None else None

    def actions(self, key: Key) -> tuple[Action, ...]:
        """What is to be done about the Deployment."""
        if self._is_to_be_written:
            return (Apply(DEPLOYMENTS, _pinned(self.body, self.live), exists=True),)
        if self.live.wanted != self.replicas:
            return (Scale(DEPLOYMENTS, key.namespace, self.live.child, self.replicas),)
        return ()

    @property
    def _is_to_be_written(self) -> bool:
        """Whether it lacks the template, or holds still since a pause that is over."""
        return self.revision is not None or bool(self.live.child.body["spec"].get("paused"))

    def reservation(self, owner: tuple[str, str]) -> Reservation:
        """What the replicas hold or will hold."""
        placement = self.last.placement
        return Reservation(
            owner, placement.name, placement.pool, placement.gpus_per_replica, self.replicas
        )


def rollback_of(
    context: ReconcileContext, placed: Scheduled, terms: Terms, deployment: Object
) -> Rollback | None:
    """How the plan that served last runs again, where just these terms have failed, or where
    to try them after others that failed would take away replicas that serve."""
    attempts = context.attempts
    if not attempts.failed:
        return None
    failed = attempts.failure_of(terms.hash)
    if failed is None and _takes_away(context, placed, deployment):
        failed = attempts.failed[-1]
    return _find_rollback(context, failed)


def rollback_of_what_runs(context: ReconcileContext) -> Rollback | None:
    """The same where nothing new is carried out, and what runs has failed or is the plan that
    served last."""
    failed, last = context.attempts.failed, context.attempts.last_ready
    running = newest(context.observation.deployments)
    if not failed or running is None:
        return None
    if last is not None and running.template == last.template:
        return _find_rollback(context, failed[-1])
    in_force = terms_in_force(context)
    return _find_rollback(context, context.attempts.failure_of(in_force.hash) if in_force else None)


def _takes_away(context: ReconcileContext, placed: Scheduled, deployment: Object) -> bool:
    deployments = context.observation.deployments
    target = find_deployment(context.observation, deployment)
    template = deployment["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    if target is not None and target.template == template:
        return False  # it is on its way
    if placed.granted < placed.option.replicas:
        return any(found.ready > 0 for found in deployments)
    all_at_once = deployment["spec"]["strategy"]["type"] == "Recreate"
    return all_at_once and target is not None and target.ready > 0


def _find_rollback(context: ReconcileContext, failed: FailedPlan | None) -> Rollback | None:
    """How the replicas get to run by the last plan that served, in the stead of one that failed;
    None where none has failed or served, or its Deployment, template or place is gone."""
    last = context.attempts.last_ready
    if failed is None or last is None or context.spec.replicas == 0:
        return None
    deployments, revisions = context.observation.deployments, context.observation.revisions
    live = next((one for one in deployments if one.placement == last.placement.name), None)
    if live is None:
        return None
    revision = None if runs(last, live) else find_revision(last, live, revisions)
    if revision is None and not runs(last, live):
        return None
    asked = asked_beside(context.accepted.asked_on(last.placement.name), live, deployments)
    wanted = last.placement.replicas if asked is None else asked
    at_hand = live.wanted if revision is None else 0
    if wanted > at_hand:
        capacity = context.capacity_in(last.placement.pool, last.placement.gpus_per_replica)
        wanted = max(at_hand, min(wanted, capacity))
    return Rollback(last, failed, live, revision, wanted, asked) if wanted else None


def hold_still(deployment: ChildDeployment) -> tuple[Action, ...]:
    """Let Kubernetes replace no pod of the Deployment, whatever it is about; none where it holds
    still already."""
    child = deployment.child
    if child.body["spec"].get("paused"):
        return ()
    body = stamped(restate(deployment, deployment.wanted, paused=True))
    return (Apply(DEPLOYMENTS, _pinned(body, deployment), exists=True),)


def restate(
    live: ChildDeployment, replicas: int, revision: Object | None = None, *, paused: bool = False
) -> Object:
    """What the operator would have rendered for a Deployment to be as it is, but for the number of
    replicas, the template where it is to be that of another revision, and a pause."""
    metadata, spec = live.child.body["metadata"], live.child.body["spec"]
    source = revision or live.child.body
    kept = {name: spec[name] for name in _KEPT if name in spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": own_labels(metadata.get("labels") or {}),
            "annotations": {
                key: value
                for key, value in _annotations(source).items()
                if key.startswith(f"{GROUP}/") and key != ANNOTATION_RENDERED
            },
            "ownerReferences": [
                owner for owner in metadata["ownerReferences"] if owner.get("controller")
            ],
        },
        "spec": {
            **kept,
            "replicas": replicas,
            "template": _template(source),
            **({"paused": True} if paused else {}),
        },
    }


def _template(source: Object) -> Object:
    """The pod template of a Deployment or of one of its ReplicaSets, as it was rendered."""
    template = source["spec"]["template"]
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if key in ("labels", "annotations")
    }
    labels = metadata.get("labels") or {}
    metadata["labels"] = {key: value for key, value in labels.items() if key != TEMPLATE_LABEL}
    return {"metadata": metadata, "spec": template["spec"]}


def _pinned(body: Object, live: ChildDeployment) -> Object:
    """With the uid, a namesake that somebody put there meanwhile is a conflict."""
    return {**body, "metadata": {**body["metadata"], "uid": live.child.uid}}


def _annotations(body: Object) -> Mapping[str, Any]:
    return body["metadata"].get("annotations") or {}
