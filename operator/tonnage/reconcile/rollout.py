"""How pods are replaced when their template changes, without waiting for GPUs that never come.

A surge starts the new replica before the old one goes and needs spare GPUs on one node of the
pool. Without them the old replica goes first, one at a time; and where the new replica is of
another size than the old one, all old ones go, because one of them may not free enough.
"""

from collections.abc import Iterable

from tonnage.api.inference import InferenceDeploymentSpec, Rollout, RolloutStrategy
from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import digest
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.retain import scheduled
from tonnage.render.deployment import render_strategy
from tonnage.render.model import SurgeMode


def find_deployment(observation: Observation, rendered: Object) -> ChildDeployment | None:
    """The Deployment that exists under the rendered one's name."""
    name = rendered["metadata"]["name"]
    return next((found for found in observation.deployments if found.child.name == name), None)


def with_strategy(
    rendered: Object,
    observation: Observation,
    spec: InferenceDeploymentSpec,
    placed: Scheduled,
    fleet: Fleet,
) -> Object:
    """The rendered Deployment with the digest of its template and the strategy for this change.

    A strategy is chosen when the template changes and stays until the next change, so that GPUs
    that come and go elsewhere never cause a write; only a surge that found no GPU is given up.
    """
    live = find_deployment(observation, rendered)
    if live is not None and not _moves_in(live, observation, placed.option.pool.name, fleet):
        rendered = _keep_affinity(rendered, live, observation)
    template = digest(rendered["spec"]["template"])
    mode = None
    if live is not None and live.template == template:
        mode = _mode_of(live, spec.rollout)
    if mode is None or _surge_is_stuck(live, observation, spec.rollout):
        mode = _choose(live, observation, spec, placed, fleet)
    metadata = rendered["metadata"]
    annotations = {**metadata["annotations"], ANNOTATION_TEMPLATE: template}
    return {
        **rendered,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**rendered["spec"], "strategy": render_strategy(mode, spec.rollout)},
    }


def _moves_in(live: ChildDeployment, observation: Observation, pool: str, fleet: Fleet) -> bool:
    """Whether the replicas come from another pool of the same cards: all of them run elsewhere."""
    running = scheduled(observation.pods, live.placement)
    return bool(running) and not any(
        pod.node and fleet.pool_of(pod.node) == pool for pod in running
    )


def _keep_affinity(rendered: Object, live: ChildDeployment, observation: Observation) -> Object:
    """The rendered Deployment with the affinity of the live one, where that is all that differs.

    Which labels tell a pool's nodes from those of others changes when any pool is declared, renamed
    or deleted; replicas that run are not started anew for that. Once a pod finds no node by the old
    labels, those of now are taken.
    """
    if _waits_for_a_node(live, observation):
        return rendered
    template = rendered["spec"]["template"]
    pod = live.child.body["spec"].get("template", {}).get("spec", {})
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
    live: ChildDeployment | None,
    observation: Observation,
    spec: InferenceDeploymentSpec,
    placed: Scheduled,
    fleet: Fleet,
) -> SurgeMode:
    if live is None or spec.rollout.strategy is RolloutStrategy.SURGE:
        return SurgeMode.SURGE
    gpus = placed.option.parallelism.gpus
    stuck = _surge_is_stuck(live, observation, spec.rollout)
    if spec.rollout.strategy is RolloutStrategy.AUTO and not stuck:
        pools = fleet.pools(tolerations=spec.template.spec.tolerations)
        spare = _spare_replicas(pools, placed.option.pool.name, gpus)
        if spare > 0:
            return SurgeMode.SURGE
    # A pod may be of another size than the Deployment: one of a change before this one.
    others = [pod.gpus for pod in observation.pods if pod.placement == live.placement]
    same_size = all(size == gpus for size in (live.parallelism.gpus, *others))
    return SurgeMode.ONE_BY_ONE if same_size else SurgeMode.ALL_AT_ONCE


def _spare_replicas(pools: Iterable[Pool], pool: str, gpus: int) -> int:
    """Replicas of so many GPUs that the pool has room for beside all that runs now."""
    return next((found.room_for(gpus) for found in pools if found.name == pool), 0)
