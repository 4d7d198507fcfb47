"""What is true now: the object, its children and its model.

What watches tell is read from the stores, in memory. What no watch tells is read live: logs,
Secrets and ConfigMaps, the Hub, Prometheus, and old ReplicaSets where a rollback needs one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Protocol

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import LABEL_KUEUE_QUEUE, LABEL_OWNER, VLLM_CONTAINER
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.api.shard import UNNAMED_SHARD, Shard, shard_of
from tonnage.api.status import PlacementStatus, reported_status
from tonnage.api.workload import Context
from tonnage.checkpoint.lookup import ModelAnswer
from tonnage.demand.signals import Look, MeasuredLoad
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, REPLICA_SETS, SERVICES
from tonnage.kube.protocol import (
    ApiError,
    ClusterReader,
    ForbiddenError,
    Kind,
    Object,
)
from tonnage.kube.rights import Right
from tonnage.reconcile.children import (
    Child,
    ChildDeployment,
    ChildPod,
    is_controlled_by,
    parse_time,
    read_child,
    read_deployments,
    read_pods,
)
from tonnage.reconcile.choice import digests_of_choice
from tonnage.reconcile.failures import needs_log
from tonnage.reconcile.inference_pool import find_pool
from tonnage.reconcile.key import Key
from tonnage.reconcile.long_endpoint import is_listed, read_context
from tonnage.reconcile.model_source import HubLookup, read_model
from tonnage.reconcile.optional_child import OptionalChildError
from tonnage.reconcile.priority import FindPriority, UnknownPriorityClass, same_for_all
from tonnage.reconcile.ready_plan import needs_revisions
from tonnage.reconcile.reported import read_placements
from tonnage.reconcile.turn import Precedence
from tonnage.render.names import long_endpoint_name, service_name
from tonnage.telemetry.cache import MeasuredCache, least_of_each
from tonnage.telemetry.load import LoadQuestion
from tonnage.telemetry.pods import ServingPod

LOG_TAIL_BYTES: Final = 64 * 1024
"""End of a failed container's log that is read: vLLM's cause stands up to 10 KB before its end."""

_LOGS_PER_RECONCILE: Final = 3


Measure = Callable[[Key, list[ServingPod]], Awaitable[Mapping[str, MeasuredCache]]]
"""Asks what vLLM measured in these pods of an object, by pod; one that is missing has told
nothing."""


async def measure_nothing(key: Key, pods: list[ServingPod]) -> Mapping[str, MeasuredCache]:
    """The answer where nobody can be asked."""
    return {}


MeasureLoad = Callable[[LoadQuestion], Awaitable[MeasuredLoad | None]]
"""Asks what load there is on the replicas; None is no opinion."""


@dataclass(frozen=True)
class Observation:
    """One InferenceDeployment and all that exists of it.

    `spec` and `model` are what became of reading them: the thing itself, or why it is missing.
    `logs` has the end of the log of failed containers, by pod; `measured` what vLLM measured of the
    ready ones, by placement that of the one with the least, as far as anybody knows. `service` is
    that over all placements, `placement_services` those of single ones. `priority` is that of its
    pods. `inference_pool` is what is there of one, or why nobody can tell, where there is or may be
    one. `queue` is the Kueue queue that its label names. `revisions` are the ReplicaSets of its
    Deployments, where the template that served last has to be looked for among them. `load` is what
    came of a look at the load, None where nobody looked, as where nobody wants to follow it.
    `declared` is the whole spec where long requests have an endpoint of their own, and `spec` then
    the part of the object itself; `long_endpoint` is what there is of that name, whosever it is.
    `marked` is the context that the object's own label names, `shard` whose it is.
    """

    key: Key
    uid: str
    resource_version: str
    generation: int
    created: datetime
    spec: InferenceDeploymentSpec | InvalidSpecError
    model: ModelAnswer | None
    previous_status: dict[str, Any]
    deployments: tuple[ChildDeployment, ...] = ()
    service: Child | None = None
    placement_services: tuple[Child, ...] = ()
    inference_pool: Child | OptionalChildError | None = None
    pods: tuple[ChildPod, ...] = ()
    revisions: tuple[Object, ...] = ()
    logs: dict[str, str] = field(default_factory=dict)
    measured: Mapping[str, MeasuredCache] = field(default_factory=dict)
    load: Look | None = None
    priority: int | UnknownPriorityClass = 0
    queue: str | None = None
    declared: InferenceDeploymentSpec | None = None
    long_endpoint: Child | None = None
    marked: Context | None = None
    shard: Shard = UNNAMED_SHARD

    @property
    def context(self) -> Context | None:
        """Which requests the object's own replicas are for; None where they are for all."""
        return self.marked if self.declared is None else Context.SHORT

    @cached_property
    def choice_digests(self) -> tuple[str, ...]:
        """What the place is chosen for, as digests_of_choice has it; empty for an invalid spec."""
        return () if isinstance(self.spec, InvalidSpecError) else digests_of_choice(self.spec)

    @cached_property
    def reported_placements(self) -> tuple[PlacementStatus, ...]:
        """The placements of the status before."""
        return tuple(read_placements(self.previous_status))

    @property
    def precedence(self) -> Precedence:
        """Its place among those that wait for GPUs."""
        known = 0 if isinstance(self.priority, UnknownPriorityClass) else self.priority
        return Precedence(known, self.created, self.key)

    @property
    def owner(self) -> tuple[str, str]:
        """Namespace and name, as fleet and placement know it."""
        return (self.key.namespace, self.key.name)


class ObjectCache(Protocol):
    """Objects that are kept in memory: the stores of the operator, or a dump of a cluster."""

    def lookup(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object of this name; None where there is none."""
        ...

    def owned(self, kind: Kind, owner: tuple[str, str]) -> list[Object]:
        """The objects of a kind that belong to an InferenceDeployment (namespace, name)."""
        ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where observing reads from.

    `cache` has what watches tell, `live` is asked for the rest. `missing_right` is the right that
    the operator lacks to keep the cache true, None while it lacks none. Only objects of `shard` are
    observed; None stands for all.
    """

    cache: ObjectCache
    live: ClusterReader
    ask_hub: Callable[[Key], HubLookup]
    measure: Measure = measure_nothing
    measure_load: MeasureLoad | None = None
    find_priority: FindPriority = same_for_all
    missing_right: Callable[[], Right | None] = lambda: None
    shard: Shard | None = None


async def observe(sources: Sources, key: Key) -> Observation | None:
    """Everything about one object; None when it is gone or about to be, or where it is of another
    shard.

    Raises ApiError when the API server cannot be asked, ForbiddenError also where the cache is
    outdated because the operator may not list a kind any more.
    """
    itself = observe_itself(sources, key)
    if itself is None:
        return None
    if (right := sources.missing_right()) is not None:
        raise ForbiddenError(f"the operator may not {right}", right)
    return await _observe_rest(sources, itself)


async def _observe_rest(sources: Sources, itself: Observation) -> Observation:
    key, spec, uid = itself.key, itself.spec, itself.uid
    cache, live = sources.cache, sources.live
    bodies = cache.owned(SERVICES, key)
    services = [read_child(body) for body in bodies if is_controlled_by(body, uid)]
    service = next((each for each in services if each.name == service_name(key.name)), None)
    pods = read_pods(cache.owned(PODS, key))
    deployments = read_deployments(cache.owned(DEPLOYMENTS, key), uid)
    return replace(
        itself,
        model=None
        if isinstance(spec, InvalidSpecError)
        else await read_model(live, sources.ask_hub(key), key.namespace, spec.model.source),
        deployments=deployments,
        service=service,
        placement_services=tuple(each for each in services if each is not service),
        inference_pool=await find_pool(live, key, uid, spec, service),
        pods=pods,
        revisions=await _read_revisions(live, itself, deployments),
        logs=await _read_logs(live, key.namespace, pods),
        measured=await _measure(sources.measure, key, pods),
        load=await _read_load(sources.measure_load, key, spec, deployments),
        long_endpoint=_find_long_endpoint(cache, itself),
        priority=0
        if isinstance(spec, InvalidSpecError)
        else await sources.find_priority(spec.template.spec.priority_class_name),
    )


def _find_long_endpoint(cache: ObjectCache, itself: Observation) -> Child | None:
    """The InferenceDeployment of the name that the endpoint for long requests has, whosever it is;
    None where there is none, or none is to be looked for."""
    if itself.declared is None and not is_listed(itself.previous_status):
        return None
    name = long_endpoint_name(itself.key.name)
    body = cache.lookup(INFERENCE_DEPLOYMENTS, itself.key.namespace, name)
    return None if body is None else read_child(body)


def observe_itself(sources: Sources, key: Key) -> Observation | None:
    """The object, and nothing that belongs to it; None when it is gone or about to be, or where it
    is of another shard."""
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
        spec=spec if isinstance(spec, InvalidSpecError) else _own_part(spec),
        model=None,
        previous_status=reported_status(body),
        queue=(metadata.get("labels") or {}).get(LABEL_KUEUE_QUEUE),
        declared=_if_told_apart(spec),
        marked=read_context(body),
        shard=shard_of(body),
    )


async def _measure(
    measure: Measure, key: Key, pods: Iterable[ChildPod]
) -> Mapping[str, MeasuredCache]:
    """What those measured that answer and stay, by placement."""
    serving = [pod for pod in pods if pod.ready and not pod.deleting]
    caches = await measure(
        key,
        [
            ServingPod(pod.name, f"{pod.uid}/{pod.restarts}/{pod.address}", pod.address)
            for pod in serving
        ],
    )
    return least_of_each(caches, {pod.name: pod.placement for pod in serving})


def _read_spec(body: Object) -> InferenceDeploymentSpec | InvalidSpecError:
    try:
        return parse_spec(body.get("spec"))
    except InvalidSpecError as error:
        return error


def _own_part(spec: InferenceDeploymentSpec) -> InferenceDeploymentSpec:
    """What the object's own replicas serve."""
    if spec.workload.long_context is None:
        return spec
    return spec.model_copy(update={"workload": spec.workload.short_part})


def _if_told_apart(
    spec: InferenceDeploymentSpec | InvalidSpecError,
) -> InferenceDeploymentSpec | None:
    """The whole spec, where requests are told apart by length."""
    if isinstance(spec, InvalidSpecError) or spec.workload.long_context is None:
        return None
    return spec


async def _read_load(
    measure_load: MeasureLoad | None,
    key: Key,
    spec: InferenceDeploymentSpec | InvalidSpecError,
    deployments: Iterable[ChildDeployment],
) -> Look | None:
    """The load on the replicas, where it is to be followed, and there is somebody to ask."""
    if isinstance(spec, InvalidSpecError) or spec.scaling.targets is None or measure_load is None:
        return None
    zero = spec.scaling.scale_to_zero
    question = LoadQuestion(
        namespace=key.namespace,
        deployments=tuple(found.child.name for found in deployments),
        targets=spec.scaling.targets,
        queued=zero.queued_requests if zero else None,
    )
    return Look(await measure_load(question))


async def _read_revisions(
    api: ClusterReader, itself: Observation, deployments: Iterable[ChildDeployment]
) -> tuple[Object, ...]:
    """Old ReplicaSets, where they are needed; without the right to list them there is no way back
    to a template, and all else goes on."""
    if not needs_revisions(itself.previous_status, deployments):
        return ()
    labels = {LABEL_OWNER: itself.key.name}
    with suppress(ForbiddenError):
        return tuple(await api.list(REPLICA_SETS, itself.key.namespace, labels))
    return ()


async def _read_logs(
    api: ClusterReader, namespace: str, pods: tuple[ChildPod, ...]
) -> dict[str, str]:
    """The logs of the newest failed pods; a log that is not there explains nothing."""
    failed = [pod for pod in reversed(pods) if needs_log(pod)]
    logs = {}
    for pod in failed[:_LOGS_PER_RECONCILE]:
        with suppress(ApiError):
            logs[pod.name] = await api.pod_log(
                namespace,
                pod.name,
                VLLM_CONTAINER,
                previous=pod.ended_before,
                limit_bytes=LOG_TAIL_BYTES,
            )
    return logs
