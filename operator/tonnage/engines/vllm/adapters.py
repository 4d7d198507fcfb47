"""The arguments of vLLM for LoRA adapters, and the memory of the host that they take."""

import json
import math
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import Adapter
from tonnage.engines.adapters import adapter_path
from tonnage.engines.model_source import served_name
from tonnage.engines.quantity import GIB
from tonnage.engines.replica import Replica
from tonnage.fit.lora.host import adapter_bytes
from tonnage.fit.options import buffer_rank, engine_options

RUNTIME_UPDATES: Final = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
"""Variable with which vLLM serves /v1/load_lora_adapter and /v1/unload_lora_adapter."""


def render_adapter_arguments(spec: InferenceDeploymentSpec, owner_name: str) -> list[str]:
    """The arguments for adapters, none without spec.lora.

    Values of the two lists are items of their own, as vLLM reads them; none begins with a dash.
    Raises fit.options.InvalidOptionError where the rank of the buffers is unknown.
    """
    lora = spec.lora
    if lora is None:
        return []
    targets = sorted(set(lora.target_modules))
    base = served_name(spec, owner_name)
    static = [] if lora.is_live else lora.adapters
    modules = [_module(adapter, base, spec) for adapter in static]
    return [
        "--enable-lora",
        f"--max-loras={lora.slots}",
        f"--max-lora-rank={buffer_rank(lora)}",
        f"--max-cpu-loras={lora.host_slots}",
        *(["--fully-sharded-loras"] if lora.fully_sharded else []),
        *(["--lora-target-modules", *targets] if targets else []),
        *(["--lora-modules", *modules] if modules else []),
    ]


def runtime_updates(spec: InferenceDeploymentSpec) -> dict[str, str]:
    """The variable of a server that loads adapters while it runs; none for any other."""
    return {RUNTIME_UPDATES: "True"} if spec.lora is not None and spec.lora.is_live else {}


def host_memory_gib(replica: Replica) -> int:
    """Memory of the pod's node for the adapters that vLLM keeps there, in whole GiB: each worker of
    the pod keeps all of them, as a whole (vllm/lora/worker_manager.py)."""
    lora = replica.spec.lora
    if lora is None:
        return 0
    options = engine_options(replica.spec, replica.catalog)
    size = adapter_bytes(replica.checkpoint.shape, options)
    return math.ceil(lora.host_slots * size * replica.gpus / GIB)


def _module(adapter: Adapter, base: str, spec: InferenceDeploymentSpec) -> str:
    module = {
        "name": adapter.name,
        "path": adapter_path(adapter, spec),
        "base_model_name": base,
    }
    # Kubernetes expands `$(NAME)` to the value of a variable, for example a token.
    return json.dumps(module, separators=(",", ":")).replace("$(", "$$(")
