"""On which pools, and with which plans, the pods of an object can run: what they request besides
GPUs, what its namespace allows, and which nodes they can be on."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.engines.inputs import Owner, RenderSettings
from tonnage.engines.replica import Replica
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import GpuPod, Pool
from tonnage.fleet.nodes.affinity import NodeRequirement
from tonnage.fleet.nodes.pod import read_other_requests
from tonnage.placement.messages import format_fit
from tonnage.placement.model import Option, Rejection, ReplicaPods
from tonnage.placement.namespace import PODS, UNLIMITED, NamespaceLimits
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
    rendered: dict[tuple[str, int, int, int], Json] = {}
    secured: dict[tuple[str, int], str | None] = {}
    # All that render_resources and render_security read of a spec; the model is part of the load.
    pod_template = spec.pod_template.model_dump_json() if spec.pod_template else None
    key = spec.template.spec.model_dump_json(), pod_template, may_download_to_cache(spec), limits

    def render(option: Option) -> Json:
        replica = Replica(owner, spec, accepted.checkpoint, option, catalog, settings)
        nodes = option.parallelism.nodes
        size = option.pool.name, replica.gpus, nodes, replica.weights_bytes
        if size not in rendered:
            rendered[size] = render_resources(replica)
        return rendered[size]

    def refuse(option: Option) -> Rejection | None:
        if limits == UNLIMITED:
            return None
        pool, pod, items = option.pool, render(option), limits.limit_range_items
        place = pool.name, option.parallelism.nodes
        if place not in secured:
            secured[place] = explain_pod_security(spec, pool, limits.pod_security, place[1])
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


def sum_requests(pods: Iterable[GpuPod]) -> Mapping[str, int]:
    """What the requests of these pods use of quotas, by the keys of quotas."""
    total: Counter[str] = Counter()
    for pod in pods:
        others = {
            "cpu": pod.others.cpu,
            "memory": pod.others.memory,
            "ephemeral-storage": pod.others.storage,
        }
        total.update({f"requests.{name}": each for name, each in (pod.requests | others).items()})
        total[PODS] += 1
    return total


def limit_pools(
    pools: Iterable[Pool],
    spec: InferenceDeploymentSpec,
    volumes: Sequence[NodeRequirement],
    fleet: Fleet,
    settings: RenderSettings,
) -> tuple[Pool, ...]:
    """The pools, without the capacity of nodes on which the pods of an accepted spec with these
    volumes cannot run, and marked where the podTemplates of spec and pool do not go together."""
    of_object = (*requirements_of(user_patch(spec)), *volumes)
    return tuple(_limit(pool, of_object, spec, fleet, settings) for pool in pools)


def _limit(
    pool: Pool,
    of_object: Sequence[NodeRequirement],
    spec: InferenceDeploymentSpec,
    fleet: Fleet,
    settings: RenderSettings,
) -> Pool:
    refused = explain_templates(spec, pool, settings)
    if refused is not None:
        return replace(pool, refused=refused)
    # Most pools have no podTemplate, and there are hundreds.
    has_template = pool.declared is not None and pool.declared.pod_template is not None
    of_pool = requirements_of(pool_patch(pool)) if has_template else ()
    requirements = (*of_pool, *of_object)
    if not requirements:
        return pool

    def why_not(node: str) -> str | None:
        labels = fleet.labels_of(node)
        unmet = (each for each in requirements if not each.admits(node, labels))
        return next((f"does not match {each}" for each in unmet), None)

    nodes = pool.nodes.limited_to(why_not)
    if nodes.counts.usable or not pool.nodes.counts.usable:
        return replace(pool, nodes=nodes)
    first = next(node.name for node in pool.nodes if node.unusable is None)
    unmet = f"none of its nodes can run the pods ({first} {why_not(first)})"
    return replace(pool, nodes=nodes, unmet=unmet)
