"""On which pools, and with which plans, the pods of an object can run: what they request besides
GPUs, what its namespace allows, and which nodes they can be on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.pool import NodeDisk
from tonnage.catalog.catalog import Catalog
from tonnage.engines.inputs import Owner, RenderSettings
from tonnage.engines.model_source import cached_path, loaded_model
from tonnage.engines.quantity import GIB
from tonnage.engines.replica import Replica
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.fleet.nodes.affinity import NodeRequirement
from tonnage.fleet.nodes.amounts import read_capacity
from tonnage.fleet.nodes.pod import read_other_requests
from tonnage.placement.messages import format_fit
from tonnage.placement.model import Option, Rejection, ReplicaPods
from tonnage.placement.namespace import UNLIMITED, NamespaceLimits
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.accept import Accepted
from tonnage.workloads.pod.disk import may_download_to_cache
from tonnage.workloads.pod.namespace_resources import (
    explain_limit_ranges,
    explain_quotas,
    quota_usage,
)
from tonnage.workloads.pod.patches import pool_patch, user_patch
from tonnage.workloads.pod.pool_check import explain_pod_security, explain_templates
from tonnage.workloads.pod.scheduling import requirements_of
from tonnage.workloads.pod.template import Json, render_resources


def replica_pods(
    owner: Owner,
    accepted: Accepted,
    limits: NamespaceLimits,
    catalog: Catalog,
    settings: RenderSettings,
) -> ReplicaPods:
    """The pods of an accepted spec in a namespace with these limits."""
    spec, limits = accepted.spec, limits.of_pods
    quotas = [quota for quota in limits.quotas if quota.counts(spec.priority_class_name)]
    rendered: dict[tuple[str, str, int, int, int], Json] = {}
    secured: dict[tuple[str, str, int], str | None] = {}
    # All that render_resources and render_security read of a spec; the model is part of the load,
    # but not where it is loaded from, nor arguments and variables that change no memory of a GPU.
    pod_template = spec.pod_template.model_dump_json() if spec.pod_template else None
    lora = spec.lora.model_dump_json() if spec.lora else None
    loading = spec.engine.model_dump_json(), loaded_model(spec, "")
    resources = spec.template.spec.model_dump_json(), pod_template, lora, loading
    by_engine = {name: spec.with_engine(name) for name in spec.engine.choices}
    key = *resources, tuple(map(may_download_to_cache, by_engine.values())), limits

    def render(option: Option) -> Json:
        of_engine, nodes = by_engine[option.engine], option.parallelism.nodes
        replica = Replica(owner, of_engine, accepted.checkpoint, option, catalog, settings)
        size = option.engine, option.pool.name, replica.gpus, nodes, replica.weights_bytes
        if size not in rendered:
            rendered[size] = render_resources(replica)
        return rendered[size]

    def refuse(option: Option) -> Rejection | None:
        if limits == UNLIMITED:
            return None
        pool, pod, items = option.pool, render(option), limits.limit_range_items
        place = option.engine, pool.name, option.parallelism.nodes
        if place not in secured:
            of_engine, nodes = by_engine[option.engine], option.parallelism.nodes
            secured[place] = explain_pod_security(of_engine, pool, limits.pod_security, nodes)
        for reason, refused in (
            (RejectedReason.POD_SECURITY_VIOLATED, secured[place]),
            (RejectedReason.LIMIT_RANGE_VIOLATED, explain_limit_ranges(pod, items)),
            (RejectedReason.QUOTA_EXCEEDED, explain_quotas(pod, items, quotas)),
        ):
            if refused is not None:
                message = f"{format_fit(option)}, but {refused}"
                return Rejection(reason, message, option=option)
        return None

    def usage(option: Option) -> Mapping[str, int]:
        of_pod = quota_usage(render(option), limits.limit_range_items)
        return {key: each * option.parallelism.nodes for key, each in of_pod.items()}

    return ReplicaPods(
        key,
        requests=lambda option: read_other_requests(render(option)),
        usage=usage,
        refuse=refuse,
    )


def limit_pools(
    pools: Iterable[Pool],
    owner: Owner,
    accepted: Accepted,
    volumes: Sequence[NodeRequirement],
    fleet: Fleet,
    settings: RenderSettings,
) -> tuple[Pool, ...]:
    """The pools, without the capacity of nodes on which the pods of an accepted spec with these
    volumes cannot run, and marked where the podTemplates of spec and pool do not go together."""
    spec = accepted.spec
    of_object = (*requirements_of(user_patch(spec)), *volumes)
    for_all = bool(of_object) or spec.pod_template is not None or spec.model.is_on_node_disk
    # Most pools state nothing about pods, and there are hundreds.
    return tuple(
        _limit(pool, of_object, owner, accepted, fleet, settings)
        if for_all or _is_particular(pool)
        else pool
        for pool in pools
    )


def _is_particular(pool: Pool) -> bool:
    """Whether the pool states what its pods need or have."""
    declared = pool.declared
    return declared is not None and (
        declared.pod_template is not None or declared.interconnect is not None
    )


def _limit(
    pool: Pool,
    of_object: Sequence[NodeRequirement],
    owner: Owner,
    accepted: Accepted,
    fleet: Fleet,
    settings: RenderSettings,
) -> Pool:
    spec = accepted.spec
    refused = _explain_templates(spec, pool, settings)
    if refused is not None:
        return replace(pool, refused=refused)
    requirements = (*requirements_of(pool_patch(pool)), *of_object)
    disk = pool.node_disk if spec.model.is_on_node_disk else None
    if not requirements and disk is None:
        return pool

    def why_not(node: str) -> str | None:
        labels = fleet.labels_of(node)
        unmet = (each for each in requirements if not each.admits(node, labels))
        mismatch = next((f"does not match {each}" for each in unmet), None)
        if mismatch is not None or disk is None:
            return mismatch
        return _explain_full_disk(disk, node, owner, accepted, fleet)

    nodes = pool.nodes.limited_to(why_not)
    if nodes.counts.usable or not pool.nodes.counts.usable:
        return replace(pool, nodes=nodes)
    first = next(node.name for node in pool.nodes if node.unusable is None)
    unmet = f"none of its nodes can run the pods ({first} {why_not(first)})"
    return replace(pool, nodes=nodes, unmet=unmet)


def _explain_full_disk(
    disk: NodeDisk, node: str, owner: Owner, accepted: Accepted, fleet: Fleet
) -> str | None:
    """Why the disk of a node has no space for the model next to what pods of other objects keep
    there, None where it has. All objects of a namespace share their files."""
    hub, checkpoint = accepted.spec.model.source.hugging_face, accepted.checkpoint
    assert hub is not None, "a cache without a repository passed validation"
    own = f"{disk.path}/{owner.namespace}", cached_path(hub.repo, checkpoint.revision or "")
    sizes = {
        (kept.directory, kept.folder): kept.size_bytes
        for kept in fleet.kept_weights(node, (owner.namespace, owner.name))
    }
    taken = sum(size for place, size in sizes.items() if place != own)
    capacity, needed = read_capacity(disk), checkpoint.weights_bytes or 0
    if taken + needed <= capacity:
        return None
    return (
        f"has {max(0, capacity - taken) / GIB:.1f} of {capacity / GIB:.1f} GiB for weights left,"
        f" and the model takes {needed / GIB:.1f} GiB"
    )


def _explain_templates(
    spec: InferenceDeploymentSpec, pool: Pool, settings: RenderSettings
) -> str | None:
    """Why the templates do not go together with one of the engines that may run the spec."""
    if not spec.engine.is_open:
        return explain_templates(spec, pool, settings)
    engines = spec.engine.choices
    problems = (explain_templates(spec.with_engine(name), pool, settings) for name in engines)
    return next(filter(None, problems), None)
