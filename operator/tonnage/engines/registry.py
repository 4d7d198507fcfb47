"""The kinds of engines, and which of them runs a replica or a container."""

from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.engines.interface import EngineKind
from tonnage.engines.sglang.engine import Sglang
from tonnage.engines.vllm.engine import Vllm

_VLLM: Final[EngineKind] = Vllm()
_SGLANG: Final[EngineKind] = Sglang()

ENGINE_KINDS: Final = {each.name: each for each in (_VLLM, _SGLANG)}
"""By name."""


def engine_for(spec: InferenceDeploymentSpec) -> EngineKind:
    """The engine of a spec."""
    return ENGINE_KINDS[spec.engine.name]


def engine_named(name: str) -> EngineKind:
    """The engine of that name, the default one for another name."""
    return ENGINE_KINDS.get(name, _VLLM)


def engine_container(pod_spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The container of a pod that has the engine, the first one with the name of an engine; None
    without one. The operator renders it before the containers of users and platform teams."""
    containers = pod_spec.get("containers")
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict) and container.get("name") in ENGINE_KINDS:
            return container
    return None
