"""What kubelets do to pods that do not come up, for `Cluster.behaviours` and `Cluster.fail_pods`.

Sources: Kubernetes pkg/kubelet/eviction/helpers.go, pkg/kubelet/kubelet.go (rejectPod),
pkg/kubelet/cm/devicemanager/manager.go, pkg/kubelet/events/event.go and
pkg/kubelet/kuberuntime/kuberuntime_manager.go.
"""

from dataclasses import dataclass
from datetime import datetime

from tests.support.api_server.fake_api import FakeApi
from tonnage.kube.kinds import EVENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import format_time

# Pods that have ended for good


def evicted(resource: str = "ephemeral-storage") -> Object:
    """The node ran short of a resource, and the kubelet ended the pod."""
    message = (
        f"The node was low on resource: {resource}. Threshold quantity: 375809638400,"
        f" available: 340Gi. Container vllm was using 181Gi, request is 0, has larger"
        f" consumption of {resource}. "
    )
    reason = {"reason": "TerminationByKubelet", "message": message}
    disrupted = {"type": "DisruptionTarget", "status": "True", **reason}
    return {
        "phase": "Failed",
        "reason": "Evicted",
        "message": message,
        "conditions": [disrupted, {"type": "PodScheduled", "status": "True"}],
    }


def unexpected_admission_error(resource: str, requested: int = 1) -> Object:
    """The kubelet has fewer healthy devices than the scheduler counted."""
    why = f"requested number of devices unavailable for {resource}"
    return _rejected(
        "UnexpectedAdmissionError",
        f"Allocate failed due to {why}. Requested: {requested}, Available: 0, which is unexpected",
    )


def out_of(resource: str) -> Object:
    """Another pod was bound to the node at the same moment."""
    return _rejected(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, requested: 1, used: 8, capacity: 8",
    )


def _rejected(reason: str, message: str) -> Object:
    return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}


# Pods whose container is never created


@dataclass(frozen=True)
class NotCreated:
    """A behaviour: the pod has its node, and its container waits for ever. `event` is the reason
    and message of the Warning that the kubelet writes about it."""

    waiting: str
    message: str = ""
    event: tuple[str, str] | None = None

    def __call__(self, pod: Object) -> Object:
        """The status that the kubelet gives the pod."""
        unready = "containers with unready status: [vllm]"
        not_ready = {"status": "False", "reason": "ContainersNotReady", "message": unready}
        waiting = {"reason": self.waiting, **({"message": self.message} if self.message else {})}
        return {
            "phase": "Pending",
            "conditions": [
                {"type": "PodReadyToStartContainers", "status": "False"},
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", **not_ready},
                {"type": "ContainersReady", **not_ready},
                {"type": "PodScheduled", "status": "True"},
            ],
            "containerStatuses": [
                {
                    "name": "vllm",
                    "ready": False,
                    "started": False,
                    "restartCount": 0,
                    "state": {"waiting": waiting},
                }
            ],
        }

    def write_event(self, api: FakeApi, pod: Object) -> None:
        """Write the Warning, or count it once more."""
        if self.event is None:
            return
        reason, message = self.event
        metadata = pod["metadata"]
        event = pod_event(pod, reason, message, api.now)
        name = event["metadata"]["name"]
        if not any(place == name for _, place, _, _ in api.versions(EVENTS)):
            api.put(EVENTS, event, manager=f"kubelet-{metadata['name']}")


def pod_event(pod: Object, reason: str, message: str, at: datetime) -> Object:
    """A Warning of the kubelet about a pod."""
    return {**warning_event("Pod", pod, reason, message, at), "reportingController": "kubelet"}


def warning_event(kind: str, body: Object, reason: str, message: str, at: datetime) -> Object:
    """A Warning as events.k8s.io/v1 shows one that was written as a core Event."""
    metadata = body["metadata"]
    regarding = {name: metadata[name] for name in ("namespace", "name", "uid")}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{metadata['name']}.{reason.lower()}",
            "namespace": metadata["namespace"],
        },
        "regarding": {"kind": kind, **regarding},
        "type": "Warning",
        "reason": reason,
        "note": message,
        "deprecatedCount": 1,
        "deprecatedFirstTimestamp": format_time(at),
        "deprecatedLastTimestamp": format_time(at),
    }


def volume_not_mounted(volume: str, why: str) -> NotCreated:
    """A volume cannot be mounted: ContainerCreating, with the Event FailedMount."""
    message = f'MountVolume.SetUp failed for volume "{volume}" : {why}'
    return NotCreated("ContainerCreating", event=("FailedMount", message))


def no_sandbox(why: str) -> NotCreated:
    """The network plugin fails: ContainerCreating, with the Event FailedCreatePodSandBox."""
    sandbox = "9c1f" * 16
    message = (
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network"
        f' for sandbox "{sandbox}": {why}'
    )
    return NotCreated("ContainerCreating", event=("FailedCreatePodSandBox", message))


def secret_missing(name: str) -> NotCreated:
    """A Secret that a variable refers to does not exist: CreateContainerConfigError."""
    message = f'secret "{name}" not found'
    return NotCreated("CreateContainerConfigError", message, ("Failed", f"Error: {message}"))


def creating() -> NotCreated:
    """The container is being created, and the kubelet says no more."""
    return NotCreated("ContainerCreating")
