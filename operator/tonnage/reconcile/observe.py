"""What is true now: the object, its children and its model, read live in this very reconcile."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import LABEL_KUEUE_QUEUE, LABEL_OWNER, VLLM_CONTAINER
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.api.status import reported_status
from tonnage.checkpoint.lookup import ModelAnswer
from tonnage.demand.signals import Look, MeasuredLoad
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, REPLICA_SETS, SERVICES
from tonnage.kube.protocol import (
    ApiError,
    ClusterReader,
    ForbiddenError,
    NotFoundError,
    Object,
    ObjectReader,
)
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
from tonnage.reconcile.failures import needs_log
from tonnage.reconcile.inference_pool import find_pool
from tonnage.reconcile.key import Key
from tonnage.reconcile.model_source import HubLookup, read_model
from tonnage.reconcile.optional_child import Hindrance
from tonnage.reconcile.priority import FindPriority, UnknownPriorityClass, same_for_all
from tonnage.reconcile.ready_plan import needs_revisions
from tonnage.reconcile.turn import Precedence
from tonnage.telemetry.cache import MeasuredCache
from tonnage.telemetry.load import LoadQuestion
from tonnage.telemetry.pods import ServingPod

LOG_TAIL_BYTES: Final = 64 * 1024
"""End of a failed container's log that is read: vLLM's cause stands up to 10 KB before its end."""

_LOGS_PER_RECONCILE: Final = 3


Measure = Callable[[Key, list[ServingPod]], Awaitable[MeasuredCache | None]]
"""Asks what vLLM measured in these pods of an object; None is no opinion."""


async def measure_nothing(key: Key, pods: list[ServingPod]) -> None:
    """The answer where nobody can be asked."""


MeasureLoad = Callable[[LoadQuestion], Awaitable[MeasuredLoad | None]]
"""Asks what load there is on the replicas; None is no opinion."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One InferenceDeployment and all that exists of it.

    `spec` and `model` are what became of reading them: the thing itself, or why it is missing.
    `logs` has the end of the log of failed containers, by pod; `measured` what vLLM measured of the
    ready ones, None where nobody knows. `priority` is that of its pods. `inference_pool` is what is
    there of one, or why nobody can tell, where there is or may be one. `queue` is the Kueue queue
    that its label names. `revisions` are the ReplicaSets of its Deployments, where the template
    that served last has to be looked for among them. `load` is what came of a look at the load,
    None where nobody looked, as where nobody wants to follow it.
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
    inference_pool: Child | Hindrance | None = None
    pods: tuple[ChildPod, ...] = ()
    revisions: tuple[Object, ...] = ()
    logs: dict[str, str] = field(default_factory=dict)
    measured: MeasuredCache | None = None
    load: Look | None = None
    priority: int | UnknownPriorityClass = 0
    queue: str | None = None

    @property
    def precedence(self) -> Precedence:
        """Its place among those that wait for GPUs."""
        known = 0 if isinstance(self.priority, UnknownPriorityClass) else self.priority
        return Precedence(known, self.created, self.key)

    @property
    def owner(self) -> tuple[str, str]:
        """Namespace and name, as fleet and placement know it."""
        return (self.key.namespace, self.key.name)


async def observe(
    api: ClusterReader,
    ask_hub: HubLookup,
    measure: Measure,
    key: Key,
    find_priority: FindPriority = same_for_all,
    measure_load: MeasureLoad | None = None,
) -> Observation | None:
    """Read everything about one object; None when it is gone or about to be.

    Raises ApiError when the API server cannot be asked.
    """
    itself = await observe_itself(api, key)
    if itself is None:
        return None
    spec, uid = itself.spec, itself.uid
    labels = {LABEL_OWNER: key.name}
    services = await api.list(SERVICES, key.namespace, labels)
    service = next((read_child(found) for found in services if is_controlled_by(found, uid)), None)
    pods = read_pods(await api.list(PODS, key.namespace, labels))
    deployments = read_deployments(await api.list(DEPLOYMENTS, key.namespace, labels), uid)
    return replace(
        itself,
        model=None
        if isinstance(spec, InvalidSpecError)
        else await read_model(api, ask_hub, key.namespace, spec.model.source),
        deployments=deployments,
        service=service,
        inference_pool=await find_pool(api, key, uid, spec, service),
        pods=pods,
        revisions=await _read_revisions(api, itself, deployments),
        logs=await _read_logs(api, key.namespace, pods),
        measured=await measure(key, _serving(pods)),
        load=await _read_load(measure_load, key, spec, deployments),
        priority=0
        if isinstance(spec, InvalidSpecError)
        else await find_priority(spec.template.spec.priority_class_name),
    )


async def observe_itself(api: ObjectReader, key: Key) -> Observation | None:
    """Read the object, and nothing that belongs to it; None when it is gone or about to be.

    Raises ApiError when the API server cannot be asked.
    """
    try:
        body = await api.get(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
    except NotFoundError:
        return None
    metadata = body["metadata"]
    if "deletionTimestamp" in metadata:
        return None
    return Observation(
        key=key,
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata["generation"],
        created=parse_time(metadata["creationTimestamp"]),
        spec=_read_spec(body),
        model=None,
        previous_status=reported_status(body),
        queue=(metadata.get("labels") or {}).get(LABEL_KUEUE_QUEUE),
    )


def _serving(pods: Iterable[ChildPod]) -> list[ServingPod]:
    """Those that answer and stay."""
    return [
        ServingPod(pod.name, f"{pod.uid}/{pod.restarts}/{pod.address}", pod.address)
        for pod in pods
        if pod.ready and not pod.deleting
    ]


def _read_spec(body: Object) -> InferenceDeploymentSpec | InvalidSpecError:
    try:
        return parse_spec(body.get("spec"))
    except InvalidSpecError as error:
        return error


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
