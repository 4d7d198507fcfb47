"""Read the pods of an InferenceDeployment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT, VLLM_CONTAINER
from tonnage.engines.defaults import load_defaults
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import parse_time
from tonnage.workloads.registry import template_of_pod

_ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod whose containers never start again."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended: its exit code, the kubelet's reason and the termination message."""

    exit_code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ChildPod:
    """A pod of one placement, with the state of its vLLM container.

    `gpus` counts those that the pod requests, of all kinds; `template` is the hash of its template.
    `address` is where its server listens, None while it has none. `waiting` is (reason, message) of
    a container that does not run; `end` is how it last ended, `ended_before` whether it has started
    again since (its log is then the previous one). `unschedulable` is why no node fits; `held_back`
    is the message of a scheduling gate, as Kueue sets one until there is quota; either has been so
    since `waits_since`. `scheduled` is when it got its node. `lost`: its node was deleted, so that
    it serves nothing, whatever it says.
    `serves`: it has the server of its replica, which the pods on further nodes have not.
    """

    name: str
    placement: str
    created: datetime
    node: str | None
    ready: bool
    deleting: bool
    restarts: int
    gpus: int = 0
    template: str = ""
    uid: str = ""
    address: str | None = None
    waiting: tuple[str, str] | None = None
    end: ContainerEnd | None = None
    ended_before: bool = False
    unschedulable: str | None = None
    held_back: str | None = None
    waits_since: datetime | None = None
    scheduled: datetime | None = None
    lost: bool = False
    serves: bool = True


def read_pods(bodies: Iterable[Object]) -> tuple[ChildPod, ...]:
    """Read the pods among `bodies`, oldest first.

    Pods that have ended for good (evicted, rejected by the kubelet) are left out: they hold no
    GPUs, another pod replaces them, and they may remain for weeks.
    """
    alive = (body for body in bodies if body.get("status", {}).get("phase") not in _ENDED)
    return tuple(sorted(map(_read_pod, alive), key=lambda pod: (pod.created, pod.name)))


def _read_pod(body: Object) -> ChildPod:
    metadata, status, requests = body["metadata"], body.get("status", {}), read_gpu_pod(body)
    labels = metadata.get("labels") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    container: Mapping[str, Any] = next(
        (
            candidate
            for candidate in status.get("containerStatuses") or []
            if candidate.get("name") == VLLM_CONTAINER
        ),
        {},
    )
    state, last_state = container.get("state") or {}, container.get("lastState") or {}
    waiting = state.get("waiting")
    end = state.get("terminated") or last_state.get("terminated")
    scheduled = conditions.get("PodScheduled", {})
    return ChildPod(
        name=metadata["name"],
        placement=labels.get(LABEL_PLACEMENT, ""),
        created=parse_time(metadata["creationTimestamp"]),
        node=body["spec"].get("nodeName"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        restarts=container.get("restartCount", 0),
        gpus=sum(requests.requests.values()) if requests else 0,
        template=template_of_pod(labels),
        uid=metadata.get("uid", ""),
        address=_read_address(status.get("podIP")),
        waiting=(waiting.get("reason", ""), waiting.get("message", "")) if waiting else None,
        end=_read_end(end) if end else None,
        ended_before="terminated" not in state,
        unschedulable=scheduled.get("message", "")
        if scheduled.get("reason") == "Unschedulable"
        else None,
        held_back=scheduled.get("message", "")
        if scheduled.get("reason") == "SchedulingGated"
        else None,
        waits_since=_read_wait(metadata, scheduled),
        scheduled=_read_scheduled(scheduled),
        serves=LABEL_OWNER in labels,
    )


def _read_scheduled(scheduled: Mapping[str, Any]) -> datetime | None:
    time = scheduled.get("lastTransitionTime")
    return datetime.fromisoformat(time) if time and scheduled.get("status") == "True" else None


def _read_wait(metadata: Mapping[str, Any], scheduled: Mapping[str, Any]) -> datetime | None:
    """Since when no node has the pod. The API server sets no time where it adds a gate."""
    if scheduled.get("status") != "False":
        return None
    since = scheduled.get("lastTransitionTime") or metadata["creationTimestamp"]
    return datetime.fromisoformat(since)


def _read_address(address: str | None) -> str | None:
    """Where the server listens. An address that no network plugin assigns is ignored: a writer of
    pod status could direct the operator to 169.254.169.254, which serves a cloud's credentials.
    """
    try:
        ip = ip_address(address or "")
    except ValueError:
        return None
    if isinstance(ip, IPv6Address):
        if ip.scope_id is not None:  # a zone is free text, and no pod has one
            return None
        ip = ip.ipv4_mapped or ip
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        return None
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    return f"{host}:{load_defaults().server.port}"


def _read_end(terminated: Mapping[str, Any]) -> ContainerEnd:
    return ContainerEnd(
        exit_code=terminated.get("exitCode", 0),
        reason=terminated.get("reason", ""),
        message=terminated.get("message", ""),
    )


def find_scheduled_pods(pods: Iterable[ChildPod], placement: str) -> list[ChildPod]:
    """Pods of the placement that hold GPUs of a node and are not being deleted."""
    return [pod for pod in pods if pod.placement == placement and pod.node and not pod.deleting]
