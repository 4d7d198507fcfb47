"""Read the pods of an InferenceDeployment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Any, Final

from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT, WEIGHTS_CONTAINER
from tonnage.engines.defaults import load_defaults
from tonnage.engines.registry import engine_container
from tonnage.fleet.nodes.pod import count_requested_gpus, read_kept_weights
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import parse_time, shorten
from tonnage.telemetry.pods import ServingPod
from tonnage.workloads.claim_template import claim_template_names
from tonnage.workloads.metadata import adapters_of_pod, takes_adapters
from tonnage.workloads.registry import replica_of_pod, template_of_pod

_ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod whose containers never start again."""

_DEFAULT_SCHEDULER: Final = "default-scheduler"

_NO_CAUSE: Final = (None, "PodInitializing", "CrashLoopBackOff")
"""Why a container waits where that is not the cause: how it ended last is."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended: its exit code, the kubelet's reason and the termination message."""

    exit_code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StartTimes:
    """When a pod passed the steps of its start, as its kubelet reports them; None before that, and
    where the kubelet does not report it.

    `sandboxed`: volumes and network are there, and the image is pulled next. `initialized`: its
    init containers have ended, None while some run. `initializes`: it has init containers.
    `downloads` is since when the container that brings weights to its node has run; `has_weights`:
    the weights are there.
    `runs`: its container runs, since `started`. `answers` is since when the pod is ready.
    """

    sandboxed: datetime | None = None
    initialized: datetime | None = None
    initializes: bool = False
    downloads: datetime | None = None
    has_weights: bool = False
    runs: bool = False
    started: datetime | None = None
    answers: datetime | None = None


@dataclass(frozen=True, slots=True)
class ChildPod:
    """A pod of one placement, with the state of the container of its engine.

    `gpus` counts those that the pod requests, of all kinds; `template` is the hash of its template.
    `address` is where its server listens, None while it has none. `waiting` is (reason, message) of
    a container that does not run; `end` is how it last ended, `ended_before` whether it has started
    again since (its log is then the previous one). `unschedulable` is why no node fits; `held_back`
    is the message of a scheduling gate, as Kueue sets one until there is quota, or says that a
    scheduler of the user's choice has not tried it; either has been so since `waits_since`.
    `scheduled` is when it got its node. `lost`: its node was deleted, so that it serves nothing,
    whatever it says.
    `serves`: it has the server of its replica, which the pods on further nodes have not; `replica`
    is the name of the pod that has it. `adapters` are the names of the LoRA adapters that it starts
    with; `takes_adapters`: it loads and unloads them while it runs.
    `engine` is the name of that container and of its engine, "" where the pod has none.
    `unclaimed`: its ResourceClaims do not exist yet, so that the scheduler has not tried it;
    `claim_templates` are the names of what they are made from.
    `keeper_end` is how the container last ended that brings the weights to its node, None where it
    has not.
    `times` are those of its start.
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
    replica: str = ""
    adapters: frozenset[str] = frozenset()
    takes_adapters: bool = False
    unclaimed: bool = False
    claim_templates: frozenset[str] = frozenset()
    keeper_end: ContainerEnd | None = None
    engine: str = ""
    times: StartTimes = StartTimes()

    @property
    def is_serving(self) -> bool:
        """Whether it serves requests, and is to go on with that."""
        return self.serves and self.ready and not self.deleting and not self.lost

    @property
    def no_weights(self) -> ContainerEnd | None:
        """Why the weights are not on its node; None while they are downloaded, and afterwards."""
        tries = self.times.downloads is not None or self.times.has_weights
        return None if tries else self.keeper_end

    @property
    def server(self) -> ServingPod:
        """This start of its server."""
        start = f"{self.uid}/{self.restarts}/{self.address}"
        return ServingPod(self.name, start, self.address, self.engine)


def read_pods(
    bodies: Iterable[Object], claimed: Mapping[str, int] = MappingProxyType({})
) -> tuple[ChildPod, ...]:
    """Read the pods among `bodies`, oldest first. `claimed` are the GPUs of one claim of each
    ResourceClaimTemplate, by its name.

    Pods that have ended for good (evicted, rejected by the kubelet) are left out: they hold no
    GPUs, another pod replaces them, and they may remain for weeks.
    """
    alive = (body for body in bodies if body.get("status", {}).get("phase") not in _ENDED)
    pods = (_read_pod(body, claimed) for body in alive)
    return tuple(sorted(pods, key=lambda pod: (pod.created, pod.name)))


def _read_pod(body: Object, claimed: Mapping[str, int]) -> ChildPod:
    metadata, status = body["metadata"], body.get("status", {})
    labels = metadata.get("labels") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    statuses: list[Mapping[str, Any]] = status.get("containerStatuses") or []
    claim_templates = claim_template_names(body)
    named = engine_container(body["spec"]) or engine_container({"containers": statuses}) or {}
    engine = named.get("name", "")
    container = next((one for one in statuses if one.get("name") == engine), {})
    state, last_state = container.get("state") or {}, container.get("lastState") or {}
    end = state.get("terminated") or last_state.get("terminated")
    scheduled, keeper = conditions.get("PodScheduled", {}), _read_keeper(body["spec"], status)
    held_back = _read_hold(body["spec"], scheduled)
    waiting = _read_waiting(state, keeper)
    return ChildPod(
        name=metadata["name"],
        placement=labels.get(LABEL_PLACEMENT, ""),
        created=parse_time(metadata["creationTimestamp"]),
        node=body["spec"].get("nodeName"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        restarts=container.get("restartCount", 0),
        gpus=count_requested_gpus(body["spec"])
        + sum(claimed.get(name, 0) for name in claim_templates),
        template=template_of_pod(labels),
        uid=metadata.get("uid", ""),
        address=_read_address(status.get("podIP")),
        waiting=(waiting.get("reason", ""), waiting.get("message", "")) if waiting else None,
        end=_read_end(end) if end else None,
        ended_before="terminated" not in state,
        unschedulable=_read_unschedulable(scheduled),
        held_back=held_back,
        waits_since=_read_wait(metadata, scheduled, held_back),
        scheduled=_read_true_since(scheduled),
        serves=LABEL_OWNER in labels,
        replica=replica_of_pod(metadata["name"], labels),
        adapters=adapters_of_pod(labels),
        takes_adapters=takes_adapters(labels),
        unclaimed=bool(claim_templates) and not scheduled,
        claim_templates=claim_templates,
        keeper_end=_read_last_end(keeper),
        engine=engine,
        times=StartTimes(
            sandboxed=_read_true_since(conditions.get("PodReadyToStartContainers", {})),
            initialized=_read_true_since(conditions.get("Initialized", {})),
            initializes=bool(body["spec"].get("initContainers")),
            downloads=_read_time(
                ((keeper.get("state") or {}).get("running") or {}).get("startedAt")
            ),
            has_weights=bool(keeper.get("started")),
            runs="running" in state,
            started=_read_time((state.get("running") or {}).get("startedAt")),
            answers=_read_true_since(conditions.get("Ready", {})),
        ),
    )


def _read_keeper(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of the container that brings weights to the node; an empty one without it."""
    if read_kept_weights(spec) is None:
        return {}
    statuses: list[Mapping[str, Any]] = status.get("initContainerStatuses") or []
    return next((one for one in statuses if one.get("name") == WEIGHTS_CONTAINER), {})


def _read_waiting(state: Mapping[str, Any], keeper: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Why the engine's container does not run. Where it waits for the one that brings the weights,
    which has the same image, why that one does not, unless it has run before."""
    waiting: Mapping[str, Any] | None = state.get("waiting")
    first = (keeper.get("state") or {}).get("waiting") or {}
    is_cause = waiting is not None and first.get("reason") not in _NO_CAUSE
    return first if is_cause else waiting


def _read_last_end(keeper: Mapping[str, Any]) -> ContainerEnd | None:
    states = (keeper.get("state") or {}, keeper.get("lastState") or {})
    end = next((state["terminated"] for state in states if state.get("terminated")), None)
    return _read_end(end) if end else None


def _read_unschedulable(scheduled: Mapping[str, Any]) -> str | None:
    """Why no node fits, or why the scheduler gave up, for example at an expression of a claim."""
    reason, message = scheduled.get("reason"), scheduled.get("message", "")
    if reason == "SchedulerError":
        return f"SchedulerError: {message}"
    return message if reason == "Unschedulable" else None


def _read_true_since(condition: Mapping[str, Any]) -> datetime | None:
    """Since when a condition of the pod is True; None while it is not."""
    is_true = condition.get("status") == "True"
    return _read_time(condition.get("lastTransitionTime")) if is_true else None


def _read_time(time: str | None) -> datetime | None:
    return datetime.fromisoformat(time) if time else None


def _read_hold(spec: Mapping[str, Any], scheduled: Mapping[str, Any]) -> str | None:
    """What keeps the pod from being tried: a gate, or a scheduler that may not exist. The default
    one tries all of its pods, and may only be late."""
    if scheduled.get("reason") == "SchedulingGated":
        return str(scheduled.get("message", ""))
    scheduler = spec.get("schedulerName") or _DEFAULT_SCHEDULER
    if scheduled or spec.get("nodeName") or scheduler == _DEFAULT_SCHEDULER:
        return None
    return f"scheduler {shorten(scheduler)} has not tried it"


def _read_wait(
    metadata: Mapping[str, Any], scheduled: Mapping[str, Any], held_back: str | None
) -> datetime | None:
    """Since when no node has the pod. The API server sets no time where it adds a gate."""
    if scheduled.get("status") != "False" and held_back is None:
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


def find_ready_replicas(
    pods: Iterable[ChildPod], placement: str, nodes_per_replica: int
) -> frozenset[str]:
    """The replicas of the placement that serve requests, by the names of their serving pods: there
    is a pod on each of their nodes, all are ready, and none is being deleted."""
    by_replica: dict[str, list[ChildPod]] = {}
    for pod in pods:
        if pod.placement == placement and not pod.deleting:
            by_replica.setdefault(pod.replica, []).append(pod)
    return frozenset(
        replica
        for replica, its_pods in by_replica.items()
        if len(its_pods) == nodes_per_replica and all(pod.ready for pod in its_pods)
    )
