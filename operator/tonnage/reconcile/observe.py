"""Read what is true now: the object, its children and its model.

Watched kinds are read from the stores, in memory. The rest is read live: logs, Secrets and
ConfigMaps, the Hub, Prometheus, and earlier pod templates where a rollback needs one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import LABEL_CONTEXT, LABEL_KUEUE_QUEUE
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.api.shard import Shard, shard_of
from tonnage.api.status import reported_status
from tonnage.api.workload import Context
from tonnage.checkpoint.lookup import HubLookup, ModelUnavailable
from tonnage.checkpoint.model import Checkpoint
from tonnage.demand.signals import LoadSample, MeasuredLoad
from tonnage.engines.inputs import Owner
from tonnage.engines.metrics import MeasuredCache
from tonnage.kube.kinds import (
    COMPUTE_DOMAINS,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    SERVICES,
)
from tonnage.kube.protocol import ClusterReader, ForbiddenError, Kind, Object, ObjectReader
from tonnage.kube.rights import Right
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod, read_pods
from tonnage.reconcile.observation.children import (
    Child,
    ChildDeployment,
    read_child,
    read_children,
    read_deployments,
)
from tonnage.reconcile.observation.findings import parse_time
from tonnage.reconcile.observation.model_source import (
    read_adapters,
    read_model,
    with_kept_adapters,
    with_kept_facts,
)
from tonnage.reconcile.observation.namespace_limits import read_limits
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.disruption_budgets import read_budgets
from tonnage.reconcile.observation.optional.download_jobs import ReadDownload, read_no_download
from tonnage.reconcile.observation.optional.inference_pool import find_pool
from tonnage.reconcile.observation.optional.weights import (
    NO_WEIGHTS,
    ObservedWeights,
    hold_commit,
    loaded_commit,
    read_weights,
)
from tonnage.reconcile.observation.plan_terms import (
    find_carrier,
    needs_revisions,
    read_last_ready,
)
from tonnage.reconcile.observation.pods.adapters import ReadServed, ask_no_pod, read_served
from tonnage.reconcile.observation.pods.failed_logs import read_failed_logs
from tonnage.reconcile.observation.pods.lost_nodes import (
    HasNode,
    find_lost_nodes,
    has_every_node,
    mark_lost,
    without_lost,
)
from tonnage.reconcile.observation.pods.reports import (
    ReadPodReports,
    read_no_reports,
    unready_since,
)
from tonnage.reconcile.observation.pods.starts import (
    NO_STARTS,
    ReadStarts,
    read_no_starts,
    replicas_of,
)
from tonnage.reconcile.observation.previous import is_listed
from tonnage.reconcile.observation.priority import (
    FindPriority,
    same_for_all,
)
from tonnage.reconcile.observation.volumes import ReadVolumes, require_nothing
from tonnage.telemetry.cache import smallest_cache_by_placement
from tonnage.telemetry.load import LoadQuery
from tonnage.telemetry.pods import ServingPod
from tonnage.workloads.claim_template import claimed_devices
from tonnage.workloads.names import long_endpoint_name, service_name
from tonnage.workloads.registry import WORKLOAD_KINDS, workload_kind_of

Measure = Callable[[Key, list[ServingPod]], Awaitable[Mapping[str, MeasuredCache]]]
"""Reads what engines measured in these pods of an object, by pod; other pods reported nothing."""


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

    `cache` has the watched kinds, `live` reads the rest; `facts_at`, if any, in its stead what a
    generation of an object, by its uid, needs to know of adapters. `missing_right` returns the
    right that the operator lacks to keep the cache up to date for an object, None while it lacks
    none. Only objects of `shard` are observed; None means all. `has_node` says whether a node is
    watched; without a watch of nodes, every node counts as existing. `read_reports` is asked only
    about objects that are not ready. `has_kind` says whether the cache has the objects of a kind
    that a cluster may lack, or that the operator may not be allowed to list.
    """

    cache: ObjectCache
    live: ClusterReader
    ask_hub: Callable[[Key], HubLookup]
    measure: Measure = measure_nothing
    measure_load: MeasureLoad | None = None
    facts_at: Callable[[str, int], ObjectReader] | None = None
    read_served: ReadServed = ask_no_pod
    find_priority: FindPriority = same_for_all
    missing_right: Callable[[Key], Right | None] = lambda key: None
    shard: Shard | None = None
    has_node: HasNode = has_every_node
    read_reports: ReadPodReports = read_no_reports
    read_starts: ReadStarts = read_no_starts
    read_download: ReadDownload = read_no_download
    read_volumes: ReadVolumes = require_nothing
    has_kind: Callable[[Kind], bool] = lambda kind: kind == POD_DISRUPTION_BUDGETS


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
    services = read_children(cache.owned(SERVICES, key), uid)
    service = next((child for child in services if child.name == service_name(key.name)), None)
    claim_templates = read_children(cache.owned(RESOURCE_CLAIM_TEMPLATES, key), uid)
    claimed = {child.name: claimed_devices(child.body) for child in claim_templates}
    pods = read_pods(cache.owned(PODS, key), claimed)
    bodies = [body for kind in WORKLOAD_KINDS for body in cache.owned(kind, key)]
    deployments = read_deployments(bodies, uid, pods)
    lost = await find_lost_nodes(live, sources.has_node, pods)
    if lost:
        deployments = without_lost(deployments, pods, lost)
        pods = mark_lost(pods, lost)
    unready = unready_since(observation.previous_status, deployments)
    observation, newest_commit = await _read_sources(sources, observation, service, deployments)
    return replace(
        observation,
        deployments=deployments,
        service=service,
        placement_services=tuple(child for child in services if child is not service),
        inference_pool=await find_pool(live, key, uid, spec, service),
        budgets=read_budgets(cache.owned, key, uid)
        if sources.has_kind(POD_DISRUPTION_BUDGETS)
        else None,
        pods=pods,
        revisions=await _read_revisions(live, observation, deployments),
        logs=await read_failed_logs(live, key.namespace, pods),
        reports=await sources.read_reports(key, unready, pods),
        starts=NO_STARTS
        if isinstance(spec, InvalidSpecError)
        else await sources.read_starts(replicas_of(key, spec, deployments, pods)),
        measured=await _measure(sources.measure, key, pods),
        load=await _read_load(sources.measure_load, key, spec, deployments),
        served_adapters=read_served(sources.read_served, key, spec, pods),
        long_endpoint=_find_long_endpoint(cache, observation),
        limits=read_limits(cache.owned, cache.lookup, key),
        priority=0
        if isinstance(spec, InvalidSpecError)
        else await sources.find_priority(spec.priority_class_name),
        volumes=()
        if isinstance(spec, InvalidSpecError)
        else await sources.read_volumes(key.namespace, spec),
        has_leader_worker_set=sources.has_kind(LEADER_WORKER_SETS),
        has_compute_domains=sources.has_kind(COMPUTE_DOMAINS),
        claim_templates=claim_templates,
        compute_domains=read_children(cache.owned(COMPUTE_DOMAINS, key), uid),
        weights=await _read_weights(sources, observation, newest_commit, deployments),
    )


async def _read_weights(
    sources: Sources,
    observation: Observation,
    newest_commit: str | None,
    deployments: tuple[ChildDeployment, ...],
) -> ObservedWeights:
    key, spec = observation.key, observation.spec
    jobs = sources.cache.owned(JOBS, key)
    if isinstance(spec, InvalidSpecError):
        return NO_WEIGHTS
    owner = Owner(key.namespace, key.name, observation.uid)
    weights = await read_weights(
        sources.live, jobs, spec, observation.model, owner, deployments, sources.read_download
    )
    return replace(weights, newest_commit=newest_commit)


async def _read_sources(
    sources: Sources,
    observation: Observation,
    service: Child | None,
    deployments: tuple[ChildDeployment, ...],
) -> tuple[Observation, str | None]:
    """The observation with the model and the adapters, as their sources give them now or gave them
    earlier; and a newer commit than that which the replicas load from a cache."""
    key, spec = observation.key, observation.spec
    if isinstance(spec, InvalidSpecError):
        return observation, None
    hub, source = sources.ask_hub(key), spec.model.source
    ask = partial(read_model, sources.live, hub.model, key.namespace)
    known, unconfirmed = with_kept_facts(await ask(source), source, service)
    is_unchanged = observation.previous_status.get("observedGeneration") == observation.generation
    loaded = loaded_commit(spec, deployments) if is_unchanged else None
    model, newest_commit = await hold_commit(
        spec, service, known, lambda commit: ask(source.at(commit)), loaded
    )
    if isinstance(known, ModelUnavailable) and isinstance(model, Checkpoint):
        unconfirmed = known
    api = (
        sources.facts_at(observation.uid, observation.generation)
        if sources.facts_at
        else sources.live
    )
    read = await read_adapters(api, hub.adapter, key.namespace, spec.lora)
    adapters = with_kept_adapters(read, spec.lora, service)
    read_observation = replace(observation, model=model, unconfirmed=unconfirmed, adapters=adapters)
    return read_observation, newest_commit


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
    """What engines measured in pods that are ready and not being deleted, by placement."""
    serving = [pod for pod in pods if pod.serves and pod.ready and not pod.deleting]
    caches = await measure(key, [pod.server for pod in serving])
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
    scale_to_zero, deployments = spec.scaling.scale_to_zero, tuple(deployments)
    engines = {*spec.engine.choices, *(deployment.engine for deployment in deployments)}
    question = LoadQuery(
        namespace=key.namespace,
        deployments=tuple(deployment.child.name for deployment in deployments),
        targets=spec.scaling.targets,
        queued=scale_to_zero.queued_requests if scale_to_zero else None,
        engines=tuple(sorted(engines)),
    )
    return LoadSample(await measure_load(question))


async def _read_revisions(
    api: ClusterReader, observation: Observation, deployments: Iterable[ChildDeployment]
) -> tuple[Object, ...]:
    """Earlier templates, where a rollback needs them. Without the right to list them no template is
    rolled back to, and all else goes on."""
    status = observation.previous_status
    last = read_last_ready(status) if needs_revisions(status, deployments) else None
    if last is None or (live := find_carrier(last, deployments)) is None:
        return ()
    kind, labels = workload_kind_of(live.child.body).revisions(live.child.body)
    with suppress(ForbiddenError):
        return tuple(await api.list(kind, observation.key.namespace, labels))
    return ()
