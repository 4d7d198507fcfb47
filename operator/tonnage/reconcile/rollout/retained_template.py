"""Keep the pod template of a placement until a user or a platform team changes what it was rendered
from.

A later operator, another driver on a node, or another label of one never replaces a pod. What a
user has edited in the Deployment is corrected to the template as the operator rendered it.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage.api.names import ANNOTATION_RESTARTED_AT, ANNOTATION_TEMPLATE
from tonnage.api.text import digest
from tonnage.engines.registry import engine_for
from tonnage.fleet.devices.resources import dra_driver_of
from tonnage.kube.protocol import Kind, Object
from tonnage.placement.model import Option
from tonnage.reconcile.actions import Stamped, apply_if_changed, stamped, with_annotations
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.kept_release import is_unchanged_since_report
from tonnage.reconcile.observation.template_record import (
    RecordedDemand,
    TemplateRecord,
    TemplateSource,
    recorded_annotations,
    template_of,
)
from tonnage.reconcile.scheduling.context import ReconcileContext, owner_of
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.workloads.metadata import optional_entries
from tonnage.workloads.pod.scheduling import follow_nodes
from tonnage.workloads.registry import workload_kind_of

_NO_RESTART: Final = {
    "node_selector", "accelerator", "cost_per_gpu_hour", "max_nodes", "weight", "pod_template",
    "allocation", "device_alignment", "weights",
}  # fmt: skip
"""Fields of an AcceleratorPool whose change replaces no pod: they are not rendered into pods, or,
as podTemplate and weights, into new ones only."""


@dataclass(frozen=True, slots=True)
class RenderedDeployment:
    """The Deployment to run without its record, and the record. `rendered_now` is the pod template
    that the operator would choose now for the release that the replicas run, `pool_template_now`
    the digest of the podTemplate of the pool in it."""

    body: Object
    record: TemplateRecord
    rendered_now: Object
    pool_template_now: str | None

    @property
    def kind(self) -> Kind:
        """The kind of the workload."""
        return workload_kind_of(self.body).kind

    @property
    def template(self) -> str:
        """The digest of the pod template."""
        return str(self.body["metadata"]["annotations"][ANNOTATION_TEMPLATE])

    def to_apply(self, live: ChildDeployment | None) -> Stamped:
        """The Deployment as it is applied, with its record."""
        record, recorded = self.record, live.record if live is not None else None
        if live is not None:
            if recorded is not None and replace(recorded, recorded_at=None) == record:
                return stamped(self.body, recorded_annotations(live.child.body))
            if self.changes_record_only(live):
                generation = live.child.body["metadata"].get("generation")
                record = replace(record, recorded_at=generation)
        return stamped(self.body, record.annotations())

    def changes_record_only(self, live: ChildDeployment) -> bool:
        """Whether nothing else differs. What an older operator rendered, which wrote no record, has
        another digest."""
        wanted = stamped(self.body) if live.record is not None else Stamped(self.body)
        return not apply_if_changed(self.kind, wanted, live.child)


def retain_template(
    context: ReconcileContext,
    placed: Scheduled,
    rendered: Object,
    live: ChildDeployment | None,
    *,
    follows_nodes: bool,
) -> RenderedDeployment:
    """The rendered Deployment with the template to run, and what that was rendered from.

    `rendered` has the template that the operator would choose now. `follows_nodes`: the pods need
    the current labels of the pool's nodes.
    """
    kind = workload_kind_of(rendered)
    rendered_now = kind.template(rendered)
    source, template = _make_source(context, placed, rendered), rendered_now
    pool_template_now = source.pool_template
    kept = _find_kept(context, placed, source, template, live) if live is not None else None
    deadline = kind.deadline_seconds(rendered)
    assert deadline is not None, "every rendered workload has a deadline"
    if kept is not None:
        source, template = kept.source, _with_restart(context, kept.template)
        has_default = context.spec.rollout.progress_deadline is None
        deadline = source.deadline_seconds or deadline if has_default else deadline
        source = replace(source, deadline_seconds=deadline if has_default else None)
        if follows_nodes:
            # The image stays, and with it the driver that it needs.
            now = rendered_now["spec"]["affinity"]
            affinity = follow_nodes(template["spec"].get("affinity") or {}, now)
            template = {**template, "spec": {**template["spec"], "affinity": affinity}}
    name = kept.name if kept and kept.template == template else digest(template)
    body = kind.with_deadline(kind.with_template(rendered, template), deadline)
    body = with_annotations(body, {ANNOTATION_TEMPLATE: name})
    record = TemplateRecord(source, _make_demand(context, placed), template, name)
    return RenderedDeployment(body, record, rendered_now, pool_template_now)


def _find_kept(
    context: ReconcileContext,
    placed: Scheduled,
    source: TemplateSource,
    rendered: Object,
    live: ChildDeployment,
) -> TemplateRecord | None:
    """The template that runs, where nothing has changed that it was rendered from; None where it is
    rendered anew. Of an older operator's template only what the API server made of it is known,
    unless this operator renders the same one."""
    recorded = live.record
    if recorded is not None:
        was, now = recorded.source, source
        same = (was.spec, was.given, was.chosen) == (now.spec, now.given, now.chosen)
        return recorded if same else None
    if not live.template:  # It is restored from its pods, not rendered.
        return None
    option = placed.option
    same_option = (live.parallelism, live.adjustments) == (option.parallelism, option.adjustments)
    if not same_option or not is_unchanged_since_report(context.observation, live):
        return None
    if source.deadline_seconds is not None:
        deadline = workload_kind_of(live.child.body).deadline_seconds(live.child.body)
        source = replace(source, deadline_seconds=deadline)
    is_same = digest(rendered) == live.template
    template = rendered if is_same else template_of(live.child.body)
    return TemplateRecord(source, _make_demand(context, placed), template, live.template)


def _make_source(context: ReconcileContext, placed: Scheduled, rendered: Object) -> TemplateSource:
    owner, option = owner_of(context.observation), placed.option
    spec = context.spec_on(option.engine)
    declared = option.pool.declared
    given = {
        "queue": owner.queue,
        "context": owner.context,
        "shard": owner.shard.name,
        "pool": declared.model_dump(
            mode="json", exclude=_not_rendered(option), exclude_defaults=True
        )
        if declared
        else {},
    }
    chosen = {
        "tensorParallelSize": option.parallelism.tensor,
        "pipelineParallelSize": option.parallelism.pipeline,
        **optional_entries(option.parallelism),
        "adjustments": {str(key): value for key, value in option.adjustments.values.items()},
        "resource": _resource_of(option),
    }
    has_deadline = spec.rollout.progress_deadline is not None
    pool_template = declared.pod_template if declared and not option.pool.refused else None
    return TemplateSource(
        spec=context.observation.pod_spec_digest(option.engine),
        given=digest(given),
        chosen=digest(chosen),
        release=None
        if spec.engine.settings.version
        else engine_for(spec).release(None, context.catalog),
        deadline_seconds=None
        if has_deadline
        else workload_kind_of(rendered).deadline_seconds(rendered),
        pool_template=digest(pool_template.as_written()) if pool_template else None,
    )


def _resource_of(option: Option) -> str:
    """The resource of the GPUs. Nodes that move from a device plugin to ResourceSlices, or back,
    replace no pod."""
    resource = option.pool.resource
    return option.accelerator.resource if dra_driver_of(resource) else resource


def _not_rendered(option: Option) -> set[str]:
    """Fields of the pool that no pod of this option is rendered from."""
    return _NO_RESTART | ({"interconnect"} if option.parallelism.nodes == 1 else set())


def _make_demand(context: ReconcileContext, placed: Scheduled) -> RecordedDemand:
    option = placed.option
    return RecordedDemand(context.demand_digest, option.fit.required_tokens, option.replicas)


def _with_restart(context: ReconcileContext, template: Object) -> Object:
    """The template with the time of the restart that the user requests."""
    restarted_at, metadata = context.spec.rollout.restarted_at, template["metadata"]
    if _restarted_at(template) == restarted_at:
        return template
    annotations = {**metadata.get("annotations", {}), ANNOTATION_RESTARTED_AT: restarted_at}
    if restarted_at is None:
        del annotations[ANNOTATION_RESTARTED_AT]
    changed = {key: value for key, value in metadata.items() if key != "annotations"}
    if annotations:
        changed["annotations"] = annotations
    return {**template, "metadata": changed}


def _restarted_at(template: Object) -> Any:
    return (template["metadata"].get("annotations") or {}).get(ANNOTATION_RESTARTED_AT)
