"""Rollback: decide which plan runs again where the wanted one has failed.

The last plan that served is found on its own Deployment: it still runs there (another pool failed),
or Kubernetes keeps its template in an old ReplicaSet, or in a ControllerRevision for several nodes.
The operator renders nothing of it anew, since the spec that it came from is not stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.api.names import (
    ANNOTATION_PLACED_FOR,
    ANNOTATION_PLACEMENT,
    ANNOTATION_RENDERED,
    ANNOTATION_TEMPLATE,
    GROUP,
)
from tonnage.api.status import FailedPlan, LastReadyPlan, PlacementStatus
from tonnage.engines.inputs import SurgeMode
from tonnage.fleet.model import Reservation
from tonnage.kube.protocol import Object
from tonnage.placement.report import read_adjustments, read_parallelism
from tonnage.reconcile.actions import Action, Apply, Scale, pin_to_uid, stamped, with_annotations
from tonnage.reconcile.observation.children import ChildDeployment, read_deployment
from tonnage.reconcile.observation.plan_terms import (
    Terms,
    find_carrier,
    find_revision,
    is_running,
)
from tonnage.reconcile.observation.serving import newest, pool_now
from tonnage.reconcile.observation.template_record import template_of
from tonnage.reconcile.rollout.approval.state import terms_in_force, terms_of_live
from tonnage.reconcile.rollout.pending_scale import subtract_secondary
from tonnage.reconcile.rollout.strategy import find_deployment
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.workloads.metadata import own_labels, placement_annotation
from tonnage.workloads.registry import workload_kind_of


@dataclass(frozen=True, slots=True)
class Rollback:
    """The replicas run by `last`, since `failed` did not come up.

    `live` is the Deployment that carries them. `revision` is the Deployment as it was by that plan;
    None where it has its template. `pool` is the name that its pool has now. `replicas` have
    capacity, of the `wanted` ones of the object, which those of secondary placements are part of.
    """

    last: LastReadyPlan
    failed: FailedPlan
    live: ChildDeployment
    revision: Object | None
    pool: str
    replicas: int
    wanted: int

    @property
    def is_complete(self) -> bool:
        """Whether all of them run by `last` again."""
        settled = self.settled
        return settled is not None and settled.serves(self.replicas)

    @property
    def body(self) -> Object:
        """The Deployment to apply."""
        if not self._needs_apply:
            return self.live.child.body
        source = self.revision and _with_placement(self.revision, self.last.placement)
        return stamped(render_from_live(self.live, self.replicas, source))

    @property
    def settled(self) -> ChildDeployment | None:
        """The Deployment, where it has the template already."""
        return self.live if self.revision is None else None

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions on the Deployment."""
        if self._needs_apply:
            return (Apply(self.live.kind, pin_to_uid(self.body, self.live.child.uid), exists=True),)
        requested = self.live.replicas_for(self.replicas)
        if self.live.wanted != requested:
            return (Scale(self.live.kind, self.live.child, requested),)
        return ()

    @property
    def _needs_apply(self) -> bool:
        """Whether it lacks the template, or is still paused after the end of a pause."""
        body = self.live.child.body
        return self.revision is not None or workload_kind_of(body).is_paused(body)

    def reservation(self, owner: tuple[str, str]) -> Reservation:
        """What the replicas hold or will hold."""
        placement = self.last.placement
        return Reservation(
            owner,
            placement.name,
            self.pool,
            read_parallelism(placement).footprint,
            self.replicas,
        )


def find_rollback(
    context: ReconcileContext, placed: Scheduled, terms: Terms, deployment: Object
) -> Rollback | None:
    """The rollback to the plan that served last, where these very terms have failed, or where
    trying them after other failed plans would take away replicas that serve."""
    attempts = context.attempts
    if not attempts.failed:
        return None
    failed = attempts.failure_of(terms.hash)
    if failed is None and _reduces_ready(context, placed, deployment):
        failed = attempts.failed[-1]
    return _find_rollback(context, failed)


def find_rollback_of_running(context: ReconcileContext) -> Rollback | None:
    """The rollback where nothing new is carried out: what runs has failed, or is the plan that
    served last."""
    failed, last = context.attempts.failed, context.attempts.last_ready
    running = newest(context.observation.deployments)
    if not failed or running is None:
        return None
    if last is not None and running.template == last.template:
        return _find_rollback(context, failed[-1])
    in_force = terms_in_force(context)
    return _find_rollback(context, context.attempts.failure_of(in_force.hash) if in_force else None)


def _reduces_ready(context: ReconcileContext, placed: Scheduled, deployment: Object) -> bool:
    deployments = context.observation.deployments
    live = find_deployment(context.observation, deployment)
    template = deployment["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    if live is not None and live.template == template:
        return False  # its rollout has begun
    if placed.granted < placed.option.replicas:
        return any(child.ready > 0 for child in deployments)
    mode = workload_kind_of(deployment).surge_mode(deployment, context.spec.rollout)
    all_at_once = mode is SurgeMode.ALL_AT_ONCE
    return all_at_once and live is not None and live.ready > 0


def _find_rollback(context: ReconcileContext, failed: FailedPlan | None) -> Rollback | None:
    """The rollback to the last plan that served, in place of `failed`; None where none has failed
    or served, or its Deployment, template or capacity is gone, or is in a former shard. With zero
    replicas its Deployment stays, since the plan runs again once there are replicas."""
    last = context.attempts.last_ready
    if failed is None or last is None:
        return None
    deployments, revisions = context.observation.deployments, context.observation.revisions
    live = find_carrier(last, deployments)
    if live is None:
        return None
    revision = None if is_running(last, live) else find_revision(last, live, revisions)
    if revision is None and not is_running(last, live):
        return None
    # By the template of a former shard, pods would run on the nodes of that one.
    if not context.observation.shard.has(template_of(revision or live.child.body)):
        return None
    asked = context.accepted.asked_on(last.placement.name)
    own = subtract_secondary(asked, live, deployments)
    replicas = last.placement.replicas if own is None else own
    secondary = sum(one.wanted for one in deployments if one.secondary and one is not live)
    wanted = last.placement.replicas + secondary if asked is None else asked
    pool = pool_now(live, context.observation.pods, context.own_pools(), context.fleet)
    running = live.wanted if revision is None else 0
    if replicas > running:
        capacity = context.capacity_in(pool, read_parallelism(last.placement).footprint)
        replicas = max(running, min(replicas, capacity))
    if not replicas and wanted:
        return None
    return Rollback(last, failed, live, revision, pool, replicas, wanted)


def split_others(
    context: ReconcileContext, rollback: Rollback
) -> tuple[list[ChildDeployment], list[ChildDeployment]]:
    """The other Deployments: the secondary ones that stay, and those that give way. A secondary one
    whose plan has failed before any of its replicas served gives way, too, and each one where no
    replica is wanted."""
    secondary: list[ChildDeployment] = []
    old: list[ChildDeployment] = []
    for child in context.observation.deployments:
        if child is rollback.live:
            continue
        failed = child.ready == 0 and context.attempts.failure_of(
            terms_of_live(context, child).hash
        )
        stays = child.secondary and not failed and rollback.wanted > 0
        (secondary if stays else old).append(child)
    return secondary, old


def pause_rollout(deployment: ChildDeployment) -> tuple[Action, ...]:
    """Pause the Deployment, so that Kubernetes replaces none of its pods; no action where it is
    paused already."""
    body = deployment.child.body
    if workload_kind_of(body).is_paused(body):
        return ()
    paused = stamped(render_from_live(deployment, deployment.wanted, paused=True))
    return (Apply(deployment.kind, pin_to_uid(paused, deployment.child.uid), exists=True),)


def render_from_live(
    live: ChildDeployment, replicas: int, earlier: Object | None = None, *, paused: bool = False
) -> Object:
    """The manifest that the operator would have rendered for the live Deployment, with another
    number of replicas, the templates that it had earlier, or a pause."""
    body = live.child.body
    kind, metadata, source = workload_kind_of(body), body["metadata"], earlier or body
    rendered: Object = {
        "apiVersion": live.kind.api_version,
        "kind": live.kind.kind,
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
        "spec": {**kind.rendered_spec(body), "replicas": replicas},
    }
    rendered = kind.with_templates_of(rendered, source)
    return kind.with_pause(rendered, paused=paused) if paused or kind.is_paused(body) else rendered


def _with_placement(body: Object, placement: PlacementStatus) -> Object:
    """The Deployment as it was, with the placement that it had then. A ReplicaSet keeps the
    annotation with it; a ControllerRevision does not, and what the pool was chosen for is then
    unknown."""
    recorded = read_deployment(body)
    parallelism, adjustments = read_parallelism(placement), read_adjustments(placement.adjustments)
    if (recorded.parallelism, recorded.adjustments) == (parallelism, adjustments):
        return body
    own = placement_annotation(placement.pool, placement.accelerator, parallelism, adjustments)
    return with_annotations(body, {ANNOTATION_PLACED_FOR: "", ANNOTATION_PLACEMENT: own})


def _annotations(body: Object) -> Mapping[str, Any]:
    return body["metadata"].get("annotations") or {}
