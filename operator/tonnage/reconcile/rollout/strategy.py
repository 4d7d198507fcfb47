"""Choose how pods are replaced when their template changes, without waiting for GPUs that never
come.

A surge starts the new replica before the old one stops and needs spare GPUs on one node of the
pool, which the quotas of the namespace have to allow. Without them the old replica stops first, one
at a time; and where the new replica is of another size than the old one, all old ones stop, because
one of them may not free enough.
"""

from collections.abc import Iterable
from dataclasses import replace

from tonnage.api.inference import Rollout, RolloutStrategy
from tonnage.api.text import digest
from tonnage.catalog.catalog import Catalog
from tonnage.engines.inputs import SurgeMode
from tonnage.fleet.model import Pool
from tonnage.kube.protocol import Object
from tonnage.placement.model import Option
from tonnage.reconcile.observation.child_pods import find_scheduled_pods
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.migration import with_migration
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.rollout.retained_template import RenderedDeployment, retain_template
from tonnage.reconcile.scheduling.context import ReconcileContext, owner_of
from tonnage.reconcile.scheduling.outcome import PlacementOutcome, Scheduled
from tonnage.workloads.registry import render_workload, workload_kind_of


def find_deployment(observation: Observation, rendered: Object) -> ChildDeployment | None:
    """The live Deployment of the rendered one's name and kind."""
    name, kind = rendered["metadata"]["name"], workload_kind_of(rendered).kind
    return next(
        (one for one in observation.deployments if (one.child.name, one.kind) == (name, kind)), None
    )


def render(context: ReconcileContext, placed: Scheduled) -> RenderedDeployment:
    """The Deployment of the placement, with the strategy by which it replaces live pods."""
    rendered = render_for(context, placed, placed.option, context.catalog)
    return _with_strategy(context, placed, with_migration(rendered, placed.last_migration))


def render_for(
    context: ReconcileContext, placed: Scheduled, option: Option, catalog: Catalog
) -> Object:
    """The Deployment of this option as the operator would render it with this catalogue."""
    return render_workload(
        owner_of(context.observation),
        context.spec,
        context.accepted.checkpoint,
        option,
        replicas=placed.granted,
        surge=SurgeMode.SURGE,
        placement_digest=context.observation.placement_digests[option.engine],
        catalog=catalog,
        settings=context.dependencies.settings,
    )


def is_carried_out(
    context: ReconcileContext, outcome: PlacementOutcome, running: ChildDeployment
) -> bool:
    """Whether the Deployment has the template of the placement."""
    if not isinstance(outcome, Scheduled):
        return False
    rendered = render(context, outcome)
    return rendered.template == running.template and (
        find_deployment(context.observation, rendered.body) is running
    )


def _with_strategy(
    context: ReconcileContext, placed: Scheduled, rendered: Object
) -> RenderedDeployment:
    """The rendered Deployment with the template to run and the strategy for this change.

    A strategy is chosen when the template changes and stays until the next change, so that GPUs
    that come and go elsewhere never cause a write; only a surge that finds no GPU, or no quota, is
    given up.
    """
    observation, rollout = context.observation, context.spec.rollout
    live = find_deployment(observation, rendered)
    origin = live
    if live is not None and _comes_from_another_pool(live, context, placed.option.pool.name):
        origin = None
    elif live is not None:
        rendered = _keep_affinity(context, rendered, live)
    follows_nodes = live is not None and _waits_for_a_node(live, observation)
    retained = retain_template(context, placed, rendered, origin, follows_nodes=follows_nodes)
    mode = None
    if live is not None and live.template == retained.template:
        mode = _read_mode(live, rollout)
    if mode is None or _surge_is_stuck(context, placed, live):
        mode = _choose_mode(context, placed, live, retained.body)
    kind = workload_kind_of(retained.body)
    body = kind.with_surge_mode(retained.body, mode, rollout)
    if live is not None:
        spec = {**body["spec"], "replicas": live.replicas_for(placed.granted)}
        body = {**body, "spec": spec}
        if kind.is_paused(live.child.body):
            body = kind.with_pause(body, paused=False)
    return replace(retained, body=body)


def _comes_from_another_pool(live: ChildDeployment, context: ReconcileContext, pool: str) -> bool:
    """Whether the replicas come from another pool of the same cards: all of them run elsewhere."""
    running = find_scheduled_pods(context.observation.pods, live.placement)
    return bool(running) and not any(
        pod.node and context.fleet.pool_of(pod.node) == pool for pod in running
    )


def _keep_affinity(context: ReconcileContext, rendered: Object, live: ChildDeployment) -> Object:
    """The rendered Deployment with the affinity of the live one, where only that differs.

    The labels that tell a pool's nodes from others change when any pool is declared, renamed or
    deleted; running replicas are not restarted for that. Once a pod finds no node by the old
    labels, or the user changes what is rendered, the current ones are taken.
    """
    kind = workload_kind_of(rendered)
    template, pod = kind.template(rendered), live.pod_template["spec"]
    is_same = pod.get("affinity") == template["spec"].get("affinity")
    if is_same or _user_may_change(context, live) or _waits_for_a_node(live, context.observation):
        return rendered
    kept = {**template, "spec": {**template["spec"], "affinity": pod.get("affinity")}}
    if digest(kept) != live.template:
        return rendered
    return kind.with_template(rendered, kept)


def _user_may_change(context: ReconcileContext, live: ChildDeployment) -> bool:
    """Whether the affinity may differ because the user has changed it."""
    if live.record is None:
        return context.spec.pod_template is not None
    return live.record.source.spec != context.observation.pod_spec_digest(live.engine)


def _waits_for_a_node(live: ChildDeployment, observation: Observation) -> bool:
    return any(
        pod.placement == live.placement and pod.unschedulable is not None
        for pod in observation.pods
    )


def _read_mode(live: ChildDeployment, rollout: Rollout) -> SurgeMode | None:
    """The strategy that was chosen for the Deployment; None when a user wrote another one."""
    return workload_kind_of(live.child.body).surge_mode(live.child.body, rollout)


def _surge_is_stuck(
    context: ReconcileContext, placed: Scheduled, live: ChildDeployment | None
) -> bool:
    if live is None or live.settled:
        return False
    if _read_mode(live, context.spec.rollout) is not SurgeMode.SURGE:
        return False
    is_refused = live.refused is not None and not context.quotas_admit_another(placed.option)
    return is_refused or _waits_for_a_node(live, context.observation)


def _choose_mode(
    context: ReconcileContext, placed: Scheduled, live: ChildDeployment | None, rendered: Object
) -> SurgeMode:
    observation, rollout = context.observation, context.spec.rollout
    can_surge = workload_kind_of(rendered).can_surge(live.child.body if live else rendered)
    if can_surge and (live is None or rollout.strategy is RolloutStrategy.SURGE):
        return SurgeMode.SURGE
    if live is None:
        return SurgeMode.ONE_BY_ONE
    gpus = placed.option.parallelism.footprint.gpus_per_node
    stuck = _surge_is_stuck(context, placed, live)
    if can_surge and rollout.strategy is RolloutStrategy.AUTO and not stuck:
        spare = _spare_replicas(context.shared_pools(), placed.option)
        if spare > 0 and context.quotas_admit_another(placed.option):
            return SurgeMode.SURGE
    # A pod may be of another size than the Deployment: it may be from an earlier change.
    sizes = [pod.gpus for pod in observation.pods if pod.placement == live.placement]
    same_size = all(size == gpus for size in (live.parallelism.footprint.gpus_per_node, *sizes))
    return SurgeMode.ONE_BY_ONE if same_size else SurgeMode.ALL_AT_ONCE


def _spare_replicas(pools: Iterable[Pool], option: Option) -> int:
    """Replicas of the option that fit in its pool next to all that runs now."""
    footprint, others = option.parallelism.footprint, option.others
    capacities = (
        pool.replica_capacity(footprint, others) for pool in pools if pool.name == option.pool.name
    )
    return next(capacities, 0)
