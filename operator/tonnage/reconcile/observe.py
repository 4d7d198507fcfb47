"""What is true now: the object, its children and its model, read live in this very reconcile."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import LABEL_KUEUE_QUEUE, LABEL_OWNER, VLLM_CONTAINER
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.api.status import reported_status
from tonnage.checkpoint.lookup import ModelAnswer
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import (
    ApiError,
    ClusterReader,
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
from tonnage.reconcile.turn import Precedence
from tonnage.telemetry.prometheus import MeasuredCache

LOG_TAIL_BYTES: Final = 64 * 1024
"""End of a failed container's log that is read: vLLM's cause stands up to 10 KB before its end."""

_LOGS_PER_RECONCILE: Final = 3


Measure = Callable[[str, list[str]], Awaitable[MeasuredCache | None]]
"""Asks what vLLM measured in these pods of a namespace; None is no opinion."""


async def measure_nothing(namespace: str, pods: list[str]) -> None:
    """The answer where no Prometheus is known."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One InferenceDeployment and all that exists of it.

    `spec` and `model` are what became of reading them: the thing itself, or why it is missing.
    `logs` has the end of the log of failed containers, by pod; `measured` what vLLM measured of the
    ready ones, None where nobody knows. `priority` is that of its pods. `inference_pool` is what is
    there of one, or why nobody can tell, where there is or may be one. `queue` is the Kueue queue
    that its label names.
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
    logs: dict[str, str] = field(default_factory=dict)
    measured: MeasuredCache | None = None
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
    return replace(
        itself,
        model=None
        if isinstance(spec, InvalidSpecError)
        else await read_model(api, ask_hub, key.namespace, spec.model.source),
        deployments=read_deployments(await api.list(DEPLOYMENTS, key.namespace, labels), uid),
        service=service,
        inference_pool=await find_pool(api, key, uid, spec, service),
        pods=pods,
        logs=await _read_logs(api, key.namespace, pods),
        measured=await measure(key.namespace, [pod.name for pod in pods if pod.ready]),
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


def _read_spec(body: Object) -> InferenceDeploymentSpec | InvalidSpecError:
    try:
        return parse_spec(body.get("spec"))
    except InvalidSpecError as error:
        return error


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
