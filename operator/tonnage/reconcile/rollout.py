"""How pods are replaced when their template changes, without waiting for GPUs that never come.

A surge starts the new replica before the old one goes and needs spare GPUs on one node of the
pool. Without them the old replica goes first, one at a time; and where the new replica is of
another size than the old one, all old ones go, because one of them may not free enough.
"""

from collections.abc import Iterable

from tonnage.api.inference import Rollout, RolloutStrategy
from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.fleet.model import Pool
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import digest
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.context import ReconcileContext, owner_of
from tonnage.reconcile.move import with_move
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import PlacementOutcome, Scheduled
from tonnage.reconcile.retain import scheduled
from tonnage.render.deployment import render_deployment, render_strategy
from tonnage.render.model import SurgeMode


def find_deployment(observation: Observation, rendered: Object) -> ChildDeployment | None:
    """The Deployment that exists under the rendered one's name."""
    name = rendered["metadata"]["name"]
    return next((found for found in observation.deployments if found.child.name == name), None)


def render(context: ReconcileContext, placed: Scheduled) -> Object:
    """The Deployment of the placement, as it replaces the pods of what is there."""
    spec = context.spec
    rendered = render_deployment(
        owner_of(context.observation),
        spec,
        context.accepted.checkpoint,
        placed.option,
        replicas=placed.granted,
        surge=SurgeMode.SURGE,
        placed_for=context.observation.choice_digests[0],
        catalog=context.catalog,
        settings=context.dependencies.settings,
    )
    return _with_strategy(context, placed, with_move(rendered, placed.moved))


def is_carried_out(
    context: ReconcileContext, outcome: PlacementOutcome, running: ChildDeployment
) -> bool:
    """Whether the Deployment has the template that the placement asks for."""
    if not isinstance(outcome, Scheduled):
        return False
    rendered = render(context, outcome)
    template = rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    return template == running.template and (
        find_deployment(context.observation, rendered) is running
    )


def _with_strategy(context: ReconcileContext, placed: Scheduled, rendered: Object) -> Object:
    """The rendered Deployment with the digest of its template and the strategy for this change.

    A strategy is chosen when the template changes and stays until the next change, so that GPUs
    that come and go elsewhere never cause a write; only a surge that found no GPU is given up.
    """
    observation, rollout = context.observation, context.spec.rollout
    live = find_deployment(observation, rendered)
    if live is not None and not _moves_in(live, context, placed.option.pool.name):
        rendered = _keep_affinity(rendered, live, observation)
    template = digest(rendered["spec"]["template"])
    mode = None
    if live is not None and live.template == template:
        mode = _mode_of(live, rollout)
    if mode is None or _surge_is_stuck(live, observation, rollout):
        mode = _choose(context, placed, live)
    metadata = rendered["metadata"]
    annotations = {**metadata["annotations"], ANNOTATION_TEMPLATE: template}
    return {
        **rendered,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**rendered["spec"], "strategy": render_strategy(mode, rollout)},
    }


def _moves_in(live: ChildDeployment, context: ReconcileContext, pool: str) -> bool:
    """Whether the replicas come from another pool of the same cards: all of them run elsewhere."""
    running = scheduled(context.observation.pods, live.placement)
    return bool(running) and not any(
        pod.node and context.fleet.pool_of(pod.node) == pool for pod in running
    )


def _keep_affinity(rendered: Object, live: ChildDeployment, observation: Observation) -> Object:
    """The rendered Deployment with the affinity of the live one, where that is all that differs.

    Which labels tell a pool's nodes from those of others changes when any pool is declared, renamed
    or deleted; replicas that run are not started anew for that. Once a pod finds no node by the old
    labels, those of now are taken.
    """
    template = rendered["spec"]["template"]
    pod = live.child.body["spec"].get("template", {}).get("spec", {})
    is_same = pod.get("affinity") == template["spec"].get("affinity")
    if is_same or _waits_for_a_node(live, observation):
        return rendered
    kept = {**template, "spec": {**template["spec"], "affinity": pod.get("affinity")}}
    if digest(kept) != live.template:
        return rendered
    return {**rendered, "spec": {**rendered["spec"], "template": kept}}


def _waits_for_a_node(live: ChildDeployment, observation: Observation) -> bool:
    return any(
        pod.placement == live.placement and pod.unschedulable is not None
        for pod in observation.pods
    )


def _mode_of(live: ChildDeployment, rollout: Rollout) -> SurgeMode | None:
    """The strategy that was chosen for the Deployment; None when somebody wrote one of his own."""
    strategy = live.child.body["spec"].get("strategy")
    return next((mode for mode in SurgeMode if render_strategy(mode, rollout) == strategy), None)


def _surge_is_stuck(
    live: ChildDeployment | None, observation: Observation, rollout: Rollout
) -> bool:
    return (
        live is not None
        and not live.settled
        and _mode_of(live, rollout) is SurgeMode.SURGE
        and _waits_for_a_node(live, observation)
    )


def _choose(
    context: ReconcileContext, placed: Scheduled, live: ChildDeployment | None
) -> SurgeMode:
    observation, rollout = context.observation, context.spec.rollout
    if live is None or rollout.strategy is RolloutStrategy.SURGE:
        return SurgeMode.SURGE
    gpus = placed.option.parallelism.gpus
    stuck = _surge_is_stuck(live, observation, rollout)
    if rollout.strategy is RolloutStrategy.AUTO and not stuck:
        spare = _spare_replicas(context.shared_pools(), placed.option.pool.name, gpus)
        if spare > 0:
            return SurgeMode.SURGE
    # A pod may be of another size than the Deployment: one of a change before this one.
    others = [pod.gpus for pod in observation.pods if pod.placement == live.placement]
    same_size = all(size == gpus for size in (live.parallelism.gpus, *others))
    return SurgeMode.ONE_BY_ONE if same_size else SurgeMode.ALL_AT_ONCE


def _spare_replicas(pools: Iterable[Pool], pool: str, gpus: int) -> int:
    """Replicas of so many GPUs that the pool has room for beside all that runs now."""
    return next((found.room_for(gpus) for found in pools if found.name == pool), 0)
