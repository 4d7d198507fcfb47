"""LoRA adapters of pods that load them while they run: which calls bring a pod to the spec. Pure.

The list that each pod gives is the truth. So a pod that was restarted, or that missed a call, gets
what it lacks, and every pod is brought to the spec on its own.
"""

from collections.abc import Mapping

from tonnage import delays
from tonnage.api.parse import InvalidSpecError
from tonnage.engines.adapters import adapter_path
from tonnage.engines.model_source import served_name
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.previous import Remembered
from tonnage.telemetry.served_adapters import AdapterCall, PodCalls


def plan_adapter_calls(
    observation: Observation, accepted: object
) -> tuple[tuple[PodCalls, ...], float | None]:
    """The calls to the pods that do not serve exactly the adapters of a spec that is accepted, or
    was before its model could not be read any more; and after how many seconds to plan again, None
    where no pod takes calls."""
    spec = observation.spec
    if not isinstance(accepted, Accepted | Remembered) or isinstance(spec, InvalidSpecError):
        return (), None
    if spec.lora is None or not spec.lora.is_live:
        return (), None
    wanted = {adapter.name: adapter_path(adapter, spec) for adapter in spec.lora.adapters}
    model, is_silent = served_name(spec, observation.key.name), False
    changes: list[PodCalls] = []
    pods = [pod for pod in observation.pods if pod.is_serving and pod.takes_adapters]
    for pod in pods:
        answer = observation.served_adapters.get(pod.name)
        if answer is None or answer.adapters is None:
            is_silent = True
        elif calls := _calls(wanted, answer.adapters):
            changes.append(PodCalls(pod.server, model, calls))
    # No event comes from a pod that does not answer, whose calls failed, or that others call.
    again = delays.ADAPTER_FIRST_RETRY if changes or is_silent else delays.ADAPTER_REFRESH
    return tuple(changes), again if pods else None


def _calls(wanted: Mapping[str, str], served: Mapping[str, str]) -> tuple[AdapterCall, ...]:
    """Unload first, so that a pod never has more adapters than it reserves memory for. vLLM keeps
    what it has cached for an adapter that is loaded again in place, so a changed one is unloaded
    too."""
    unloaded = [name for name, source in served.items() if wanted.get(name) != source]
    loaded = [name for name, source in wanted.items() if served.get(name) != source]
    return (
        *(AdapterCall(name) for name in unloaded),
        *(AdapterCall(name, wanted[name]) for name in loaded),
    )
