"""Read which LoRA adapters the pods of an object list."""

import math
from collections.abc import Callable, Iterable, Mapping

from tonnage import delays
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.engines.model_source import served_name
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.telemetry.pods import ServingPod
from tonnage.telemetry.served_adapters import ServedAdapters

ReadServed = Callable[[Key, list[ServingPod], str, float], Mapping[str, ServedAdapters]]
"""Reads the adapters of these pods of an object, which serve a model of this name, by pod; again
after so many seconds. A pod that was not asked yet is missing."""


def ask_no_pod(
    key: Key, pods: list[ServingPod], model: str, refresh: float
) -> Mapping[str, ServedAdapters]:
    """Read nothing."""
    return {}


def read_served(
    read: ReadServed,
    key: Key,
    spec: InferenceDeploymentSpec | InvalidSpecError,
    pods: Iterable[ChildPod],
) -> Mapping[str, ServedAdapters]:
    """The adapters that the pods list, where there may be any. Those that a pod starts with are
    read once; those that change while it runs, again and again."""
    if isinstance(spec, InvalidSpecError) or spec.lora is None:
        return {}
    serving = [pod for pod in pods if pod.is_serving]
    live = [pod.server for pod in serving if pod.takes_adapters]
    static = [pod.server for pod in serving if pod.adapters]
    model = served_name(spec, key.name)
    return {
        **(read(key, live, model, delays.ADAPTER_REFRESH) if live else {}),
        **(read(key, static, model, math.inf) if static else {}),
    }
