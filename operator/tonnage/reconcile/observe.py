"""Read what is true now: the object, its children and its model.

Watched kinds are read from the stores, in memory. The rest is read live: logs, Secrets and
ConfigMaps, the Hub, Prometheus, and old ReplicaSets where a rollback needs one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import LABEL_CONTEXT, LABEL_KUEUE_QUEUE, LABEL_OWNER, VLLM_CONTAINER
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.api.shard import Shard, shard_of
from tonnage.api.status import reported_status
from tonnage.api.workload import Context
from tonnage.checkpoint.lookup import ModelAnswer, ModelUnavailable
from tonnage.demand.signals import LoadSample, MeasuredLoad
from tonnage.informers.owners import ANY_OWNER
from tonnage.kube.kinds import (
    INFERENCE_DEPLOYMENTS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from tonnage.kube.protocol import (
    ApiError,
    ClusterReader,
    ForbiddenError,
    Kind,
    Object,
)
from tonnage.kube.rights import Right
from tonnage.placement.namespace import NamespaceLimits
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod, read_pods
from tonnage.reconcile.observation.children import (
    Child,
    ChildDeployment,
    is_controlled_by,
    read_child,
    read_deployments,
)
from tonnage.reconcile.observation.findings import parse_time
from tonnage.reconcile.observation.model_source import HubLookup, read_model, with_kept_facts
from tonnage.reconcile.observation.namespace_limits import (
    read_limit_ranges,
    read_pod_security,
    read_quotas,
)
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.disruption_budgets import read_budgets
from tonnage.reconcile.observation.optional.inference_pool import find_pool
from tonnage.reconcile.observation.plan_terms import needs_revisions
from tonnage.reconcile.observation.pods.failures import needs_log
from tonnage.reconcile.observation.pods.lost_nodes import (
    HasNode,
    find_lost_nodes,
    has_every_node,
    mark_lost,
    without_lost,
)
from tonnage.reconcile.observation.pods.reports import (
    NO_REPORTS,
    ReadPodReports,
    read_no_reports,
    unready_since,
)
from tonnage.reconcile.observation.previous import is_listed
from tonnage.reconcile.observation.priority import (
    FindPriority,
    same_for_all,
)
from tonnage.reconcile.observation.volumes import ReadVolumes, require_nothing
from tonnage.telemetry.cache import MeasuredCache, smallest_cache_by_placement
from tonnage.telemetry.load import LoadQuery
from tonnage.telemetry.pods import ServingPod
from tonnage.telemetry.startup_log import find_cause
from tonnage.workloads.names import long_endpoint_name, service_name
from tonnage.workloads.registry import WORKLOAD_KINDS

LOG_TAIL_BYTES: Final = 64 * 1024
"""Bytes read from the end of a failed container's log: vLLM logs its cause up to 10 KB before."""

_LOGS_PER_RECONCILE: Final = 3


Measure = Callable[[Key, list[ServingPod]], Awaitable[Mapping[str, MeasuredCache]]]
"""Reads what vLLM measured in these pods of an object, by pod; a missing pod reported nothing."""


async def measure_nothing(key: Key, pods: list[ServingPod]) -> Mapping[str, MeasuredCache]:
    """Measure without a source: no pod reports anything."""
    return {}


MeasureLoad = Callable[[LoadQuery], Awaitable[MeasuredLoad | None]]
"""Measures the load on the replicas; None means no opinion."""


class ObjectCache(Protocol):
    """Objects in memory: the stores of the operator, or a dump of a cluster."""

    def lookup(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object of this name; None where there is none."""
        ...

    def owned(self, kind: Kind, owner: tuple[str, str]) -> list[Object]:
        """The objects of a kind that belong to an InferenceDeployment (namespace, name).
        Of PodDisruptionBudgets, those of users belong to (namespace, ANY_OWNER), and so do all
        ResourceQuotas and LimitRanges."""
        ...


@dataclass(frozen=True, slots=True)
class Sources:
    """What `observe` reads from.

    `cache` has the watched kinds, `live` reads the rest. `missing_right` returns the right
    that the operator lacks to keep the cache up to date for an object, None while it lacks none.
    Only objects of `shard` are observed; None means all. `has_node` says whether a node is watched;
    without a watch of nodes, every node counts as existing. `read_reports` is asked only about
    objects that are not ready. `has_budgets` says whether the cache has the PodDisruptionBudgets,
    and `has_leader_worker_set` whether the cluster has that kind.
    """

    cache: ObjectCache
    live: ClusterReader
    ask_hub: Callable[[Key], HubLookup]
    measure: Measure = measure_nothing
    measure_load: MeasureLoad | None = None
    find_priority: FindPriority = same_for_all
    missing_right: Callable[[Key], Right | None] = lambda key: None
    shard: Shard | None = None
    has_node: HasNode = has_every_node
    read_reports: ReadPodReports = read_no_reports
    read_volumes: ReadVolumes = require_nothing
    has_budgets: Callable[[], bool] = lambda: True
    has_leader_worker_set: Callable[[], bool] = lambda: False


async def observe(sources: Sources, key: Key) -> Observation | None:
    """Observe one object; None when it is gone, is being deleted or is of another shard.

    Raises ApiError when the API server does not answer, and ForbiddenError also where the cache is
    outdated because the operator may not list a kind any more.
    """
    observation = observe_object(sources, key)
    if observation is None:
        return None
    if (right := sources.missing_right(observation.key)) is not None:
        raise ForbiddenError(f"the operator may not {right}", right)
    return await _observe_children(sources, observation)


async def _observe_children(sources: Sources, observation: Observation) -> Observation:
    key, spec, uid = observation.key, observation.spec, observation.uid
    cache, live = sources.cache, sources.live
    service_bodies = cache.owned(SERVICES, key)
    services = [read_child(body) for body in service_bodies if is_controlled_by(body, uid)]
    service = next((child for child in services if child.name == service_name(key.name)), None)
    pods = read_pods(cache.owned(PODS, key))
    bodies = [body for kind in WORKLOAD_KINDS for body in cache.owned(kind, key)]
    deployments = read_deployments(bodies, uid, pods)
    lost = await find_lost_nodes(live, sources.has_node, pods)
    if lost:
        deployments = without_lost(deployments, pods, lost)
        pods = mark_lost(pods, lost)
    unready = unready_since(observation.previous_status, deployments)
    model, unconfirmed = await _read_model(sources, key, spec, service)
    return replace(
        observation,
        model=model,
        unconfirmed=unconfirmed,
        deployments=deployments,
        service=service,
        placement_services=tuple(child for child in services if child is not service),
        inference_pool=await find_pool(live, key, uid, spec, service),
        budgets=read_budgets(cache.owned, key, uid) if sources.has_budgets() else None,
        pods=pods,
        revisions=await _read_revisions(live, observation, deployments),
        logs=await _read_logs(live, key.namespace, pods),
        reports=NO_REPORTS if unready is None else await sources.read_reports(key, unready, pods),
        measured=await _measure(sources.measure, key, pods),
        load=await _read_load(sources.measure_load, key, spec, deployments),
        long_endpoint=_find_long_endpoint(cache, observation),
        limits=_read_limits(cache, key.namespace),
        priority=0
        if isinstance(spec, InvalidSpecError)
        else await sources.find_priority(spec.priority_class_name),
        volumes=()
        if isinstance(spec, InvalidSpecError)
        else await sources.read_volumes(key.namespace, spec),
        has_leader_worker_set=sources.has_leader_worker_set(),
    )


async def _read_model(
    sources: Sources,
    key: Key,
    spec: InferenceDeploymentSpec | InvalidSpecError,
    service: Child | None,
) -> tuple[ModelAnswer | None, ModelUnavailable | None]:
    """The model, and why its source does not confirm it, where it does not."""
    if isinstance(spec, InvalidSpecError):
        return None, None
    source = spec.model.source
    answer = await read_model(sources.live, sources.ask_hub(key), key.namespace, source)
    return with_kept_facts(answer, source, service)


def _read_limits(cache: ObjectCache, namespace: str) -> NamespaceLimits:
    """What the namespace allows, as far as the operator may read it."""
    every_owner = namespace, ANY_OWNER
    return NamespaceLimits(
        read_quotas(cache.owned(RESOURCE_QUOTAS, every_owner)),
        read_limit_ranges(cache.owned(LIMIT_RANGES, every_owner)),
        read_pod_security(cache.lookup(NAMESPACES, None, namespace)),
    )


def _find_long_endpoint(cache: ObjectCache, observation: Observation) -> Child | None:
    """The InferenceDeployment that bears the name of the endpoint for long requests, of any owner;
    None where there is none, or where the spec and the status know of no endpoint."""
    if observation.declared is None and not is_listed(observation.previous_status):
        return None
    name = long_endpoint_name(observation.key.name)
    body = cache.lookup(INFERENCE_DEPLOYMENTS, observation.key.namespace, name)
    return None if body is None else read_child(body)


def observe_object(sources: Sources, key: Key) -> Observation | None:
    """The object without its children; None when it is gone, is being deleted or is of another
    shard."""
    body = sources.cache.lookup(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
    if body is None:
        return None
    shard = sources.shard
    metadata = body["metadata"]
    if "deletionTimestamp" in metadata or shard not in (None, shard_of(body)):
        return None
    spec = _read_spec(body)
    return Observation(
        key=key,
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata["generation"],
        created=parse_time(metadata["creationTimestamp"]),
        spec=spec if isinstance(spec, InvalidSpecError) else _own_spec(spec),
        model=None,
        previous_status=reported_status(body),
        queue=(metadata.get("labels") or {}).get(LABEL_KUEUE_QUEUE),
        declared=_declared_if_split(spec),
        marked=_read_context(body),
        shard=shard_of(body),
        requested_replicas=_read_requested_replicas(body),
    )


def _read_context(body: Object) -> Context | None:
    """Read which requests an object serves from its label, set by the operator or the user. Any
    other value is no context."""
    value = (body["metadata"].get("labels") or {}).get(LABEL_CONTEXT)
    return Context(value) if value in list(Context) else None


async def _measure(
    measure: Measure, key: Key, pods: Iterable[ChildPod]
) -> Mapping[str, MeasuredCache]:
    """What vLLM measured in pods that are ready and not being deleted, by placement."""
    serving = [pod for pod in pods if pod.serves and pod.ready and not pod.deleting]
    caches = await measure(
        key,
        [
            ServingPod(pod.name, f"{pod.uid}/{pod.restarts}/{pod.address}", pod.address)
            for pod in serving
        ],
    )
    return smallest_cache_by_placement(caches, {pod.name: pod.placement for pod in serving})


def _read_spec(body: Object) -> InferenceDeploymentSpec | InvalidSpecError:
    try:
        return parse_spec(body.get("spec"))
    except InvalidSpecError as error:
        return error


def _read_requested_replicas(body: Object) -> int | None:
    """`spec.replicas` of a spec that may be invalid elsewhere; None where it is no valid number."""
    spec = body.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    return replicas if type(replicas) is int and replicas >= 0 else None


def _own_spec(spec: InferenceDeploymentSpec) -> InferenceDeploymentSpec:
    """The part of the spec that the object's own replicas serve."""
    if spec.workload.long_context is None:
        return spec
    return spec.model_copy(update={"workload": spec.workload.short_part})


def _declared_if_split(
    spec: InferenceDeploymentSpec | InvalidSpecError,
) -> InferenceDeploymentSpec | None:
    """The whole spec, where long requests have an endpoint of their own."""
    if isinstance(spec, InvalidSpecError) or spec.workload.long_context is None:
        return None
    return spec


async def _read_load(
    measure_load: MeasureLoad | None,
    key: Key,
    spec: InferenceDeploymentSpec | InvalidSpecError,
    deployments: Iterable[ChildDeployment],
) -> LoadSample | None:
    """The load on the replicas, where the spec follows it and the operator can measure it."""
    if isinstance(spec, InvalidSpecError) or spec.scaling.targets is None or measure_load is None:
        return None
    scale_to_zero = spec.scaling.scale_to_zero
    question = LoadQuery(
        namespace=key.namespace,
        deployments=tuple(deployment.child.name for deployment in deployments),
        targets=spec.scaling.targets,
        queued=scale_to_zero.queued_requests if scale_to_zero else None,
    )
    return LoadSample(await measure_load(question))


async def _read_revisions(
    api: ClusterReader, observation: Observation, deployments: Iterable[ChildDeployment]
) -> tuple[Object, ...]:
    """Old ReplicaSets, where a rollback needs them. Without the right to list them no template is
    rolled back to, and all else goes on."""
    if not needs_revisions(observation.previous_status, deployments):
        return ()
    labels = {LABEL_OWNER: observation.key.name}
    with suppress(ForbiddenError):
        return tuple(await api.list(REPLICA_SETS, observation.key.namespace, labels))
    return ()


async def _read_logs(
    api: ClusterReader, namespace: str, pods: tuple[ChildPod, ...]
) -> dict[str, str]:
    """The logs of the newest failed pods; a log that cannot be read is left out."""
    failed = [pod for pod in reversed(pods) if needs_log(pod)]
    logs = {}
    for pod in failed[:_LOGS_PER_RECONCILE]:
        log = await _read_log_of_failed_run(api, namespace, pod)
        if log is not None:
            logs[pod.name] = log
    return logs


async def _read_log_of_failed_run(api: ClusterReader, namespace: str, pod: ChildPod) -> str | None:
    """The end of the log of the container's last run that ended; None if it cannot be read.

    The kubelet restarts a container at once after its first failure. Where the pod in the store is
    older than that, the current log is the one of the new run, and names no cause.
    """
    current = None
    if not pod.ended_before:
        current = await _read_log(api, namespace, pod, previous=False)
        if current is not None and find_cause(current) is not None:
            return current
    previous = await _read_log(api, namespace, pod, previous=True)
    return current if previous is None else previous


async def _read_log(
    api: ClusterReader, namespace: str, pod: ChildPod, *, previous: bool
) -> str | None:
    with suppress(ApiError):
        return await api.pod_log(
            namespace, pod.name, VLLM_CONTAINER, previous=previous, limit_bytes=LOG_TAIL_BYTES
        )
    return None
