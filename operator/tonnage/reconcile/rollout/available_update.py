"""What the operator would run the replicas with now: reported, and taken on the user's word."""

from collections.abc import Iterable

from tonnage.api.status import AvailableUpdate
from tonnage.catalog.catalog import Catalog
from tonnage.engines.registry import engine_for
from tonnage.kube.protocol import Object
from tonnage.placement.judge import PoolJudge
from tonnage.placement.model import Option, Rejection, Request
from tonnage.reconcile.observation.plan_terms import Terms, read_terms
from tonnage.reconcile.observation.template_record import template_of
from tonnage.reconcile.rollout.differences import compare, list_differences, list_settings
from tonnage.reconcile.rollout.retained_template import RenderedDeployment
from tonnage.reconcile.rollout.strategy import render_for
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import Scheduled


def find_update(
    context: ReconcileContext, placed: Scheduled, running: RenderedDeployment
) -> AvailableUpdate | None:
    """What the operator would render now in place of what is retained; None where that is the
    same. The labels of the nodes that the pods may run on do not count."""
    catalog, option, template = context.dependencies.catalog, placed.option, running.rendered_now
    retained, misfit = template_of(running.body), None
    if catalog is not context.catalog:
        verdict = _judge(context, placed, catalog)
        option, misfit = (option, verdict) if isinstance(verdict, Rejection) else (verdict, None)
        template = template_of(render_for(context, placed, option, catalog))
    elif template == retained and context.observation.weights.newest_commit is None:
        return None
    if option.pool.refused is not None:
        return None
    spec = context.spec_on(option.engine)
    engine, version = engine_for(spec), spec.engine.settings.version
    before, after = (engine.release(version, one) for one in (context.catalog, catalog))
    changes = [
        *compare({engine.title: before}, {engine.title: after}),
        *list_differences(_read_terms(placed.option, retained), _read_terms(option, template)),
        *list_settings(retained, template),
    ]
    changes += _list_commits(context)
    if running.pool_template_now != running.record.source.pool_template:
        changes.append(f"podTemplate of AcceleratorPool {option.pool.name}")
    if not changes:
        return None
    message = ", ".join(changes)
    if misfit is not None:
        message = f"{message}; pool {option.pool.name} cannot run that: {misfit.message}"
    image = _read_terms(option, template).image
    return AvailableUpdate(release=after, image=image, message=message)


def _list_commits(context: ReconcileContext) -> Iterable[str]:
    """The commit that the revision names now, where the replicas load another one."""
    newest, hub = context.observation.weights.newest_commit, context.spec.model.source.hugging_face
    loaded = context.accepted.checkpoint.revision
    if newest is None or hub is None:
        return []
    return compare({f"commit of {hub.revision}": loaded}, {f"commit of {hub.revision}": newest})


def _judge(context: ReconcileContext, placed: Scheduled, catalog: Catalog) -> Option | Rejection:
    """The option on the same pool by this catalogue, with the same parallelism if it fits."""
    option, corrections = placed.option, context.corrections
    request = Request(
        owner=context.observation.key,
        spec=context.spec_on(option.engine),
        checkpoint=context.accepted.checkpoint,
        keep=(option.pool.name, option.parallelism),
        kept_adjustments=option.adjustments,
        corrections=corrections,
        kept_corrections=corrections,
        demanded=context.accepted.demanded,
        pods=context.replica_pods(),
        has_leader_worker_set=context.observation.has_leader_worker_set,
        has_compute_domains=context.observation.has_compute_domains,
        channel_pools=frozenset({option.pool.name}),
    )
    cache = context.dependencies.placement_cache
    options = PoolJudge(request, catalog, cache).options(option.pool)
    if isinstance(options, Rejection):
        return options
    same = (each for each in options if each.parallelism == option.parallelism)
    return next(same, options[0])


def _read_terms(option: Option, template: Object) -> Terms:
    return read_terms(option.pool.name, option.accelerator.id, option.parallelism, template)
