"""Which replicas serve each LoRA adapter, and why others do not."""

from collections.abc import Mapping, Sequence

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import Adapter
from tonnage.api.parse import InvalidSpecError
from tonnage.api.status import AdapterStatus
from tonnage.engines.adapters import adapter_path
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.observation import Observation
from tonnage.telemetry.served_adapters import ServedAdapters


def adapter_statuses(observation: Observation) -> list[AdapterStatus]:
    """Each adapter of the spec with the replicas that serve it."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError) or spec.lora is None:
        return []
    ready = [pod for pod in observation.pods if pod.is_serving]
    return [_adapter_status(adapter, spec, observation, ready) for adapter in spec.lora.adapters]


def _adapter_status(
    adapter: Adapter,
    spec: InferenceDeploymentSpec,
    observation: Observation,
    ready: Sequence[ChildPod],
) -> AdapterStatus:
    path = adapter_path(adapter, spec)
    problems = {
        pod.name: _why_not_served(pod, adapter.name, path, observation.served_adapters)
        for pod in ready
    }
    lacking = [f"pod {pod} {why}" for pod, why in problems.items() if why is not None]
    return AdapterStatus(
        name=adapter.name,
        ready_replicas=len(ready) - len(lacking),
        message=lacking[0] if lacking else None,
    )


def _why_not_served(
    pod: ChildPod, name: str, path: str, served: Mapping[str, ServedAdapters]
) -> str | None:
    """Why a ready pod does not serve the adapter; None if it does. Without an answer of the pod,
    those that it starts with count: it is ready only after vLLM has loaded them."""
    answer = served.get(pod.name)
    listed = answer.adapters if answer is not None else None
    if not pod.takes_adapters:
        if name not in pod.adapters:
            return "started without it"
        return None if listed is None or name in listed else "does not list it on /v1/models"
    if answer is None:
        return "was not asked yet"
    if answer.adapters is None:
        return answer.problem
    if answer.adapters.get(name) == path:
        return None
    return answer.failed.get(name, "is loading it")
