"""Which replicas serve each LoRA adapter, and why others do not."""

from collections.abc import Sequence

from tonnage.api.model import Adapter
from tonnage.api.parse import InvalidSpecError
from tonnage.api.status import AdapterStatus
from tonnage.engines.adapters import adapter_path
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.previous import Remembered
from tonnage.telemetry.served_adapters import ServedAdapters


def adapter_statuses(observation: Observation, accepted: object) -> list[AdapterStatus]:
    """Each adapter of the spec with the replicas that serve it; `accepted` is whether the spec is
    accepted, as the status input has it."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError) or spec.lora is None:
        return []
    ready = [pod for pod in observation.pods if pod.is_serving]
    idle = None if spec.lora.is_live else "loads none any more, with updates Rolling"
    if not isinstance(accepted, Accepted | Remembered):
        idle = "gets it only once the spec is accepted"
    return [
        _adapter_status(adapter, adapter_path(adapter, spec), observation, ready, idle)
        for adapter in spec.lora.adapters
    ]


def _adapter_status(
    adapter: Adapter,
    path: str,
    observation: Observation,
    ready: Sequence[ChildPod],
    idle: str | None,
) -> AdapterStatus:
    served = observation.served_adapters
    problems = {
        pod.name: _why_not_served(pod, adapter.name, path, served.get(pod.name), idle)
        for pod in ready
    }
    lacking = [f"pod {pod} {why}" for pod, why in problems.items() if why is not None]
    return AdapterStatus(
        name=adapter.name,
        ready_replicas=len(ready) - len(lacking),
        message=lacking[0] if lacking else None,
    )


def _why_not_served(
    pod: ChildPod, name: str, path: str, answer: ServedAdapters | None, idle: str | None
) -> str | None:
    """Why a ready pod does not serve the adapter; None if it does. Without an answer of the pod,
    those that it starts with count: it is ready only after vLLM has loaded them. `idle` is why the
    operator loads none into running pods, None where it does."""
    listed = answer.adapters if answer is not None else None
    if not pod.takes_adapters:
        if name not in pod.adapters:
            return "started without it"
        if listed is None or listed.get(name) == path:
            return None
        return (
            "started with other files of it" if name in listed else "does not list it on /v1/models"
        )
    if answer is None:
        return "was not asked yet"
    if listed is None:
        return answer.problem
    if listed.get(name) == path:
        return None
    return idle or answer.failed.get(name, "is loading it")
