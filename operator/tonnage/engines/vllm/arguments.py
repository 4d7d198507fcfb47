"""The arguments of `vllm serve`.

Each is one item of a list that no shell parses. A value follows an equals sign, because vLLM would
parse a separate value with a leading dash as a flag.
"""

from collections.abc import Sequence
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.vllm.flags import engine_flags
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import ReservedArgumentError
from tonnage.engines.lifetime import drain_seconds
from tonnage.engines.model_source import loaded_model, loaded_revision, served_name
from tonnage.engines.quantity import read_size
from tonnage.engines.replica import Replica
from tonnage.engines.vllm.adapters import render_adapter_arguments
from tonnage.engines.vllm.drain import SHUTDOWN_FLAG, drains_by_itself
from tonnage.engines.vllm.image import release_of
from tonnage.fit.model import Parallelism
from tonnage.placement.adjustments import EngineAdjustments

WORKER_FLAG: Final = "--headless"
"""Argument of all pods of a replica but the first, which has the server."""

_PARALLELISM: Final = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "nodes": "--nnodes",
}
"""Flags with the sizes of a Parallelism."""

_AUTO: Final = "auto"
_EXTRA_ARGS: Final = "spec.engine.vllm.extraArgs"


def render_arguments(replica: Replica) -> list[str]:
    """The arguments after `vllm serve`, the user's last. Defaults of vLLM are left out, so that the
    release decides."""
    spec, name = replica.spec, replica.owner.name
    return [
        _literal(loaded_model(spec, name, replica.checkpoint.revision)),
        f"--served-model-name={_literal(served_name(spec, name))}",
        *_revision(spec),
        f"--port={load_defaults().server.port}",
        *_shutdown(replica),
        *_parallelism(replica.option.parallelism, spec),
        *_group(replica.option.parallelism),
        *_memory(spec, replica.option.adjustments),
        *render_adapter_arguments(spec, name),
        *_settings(replica),
        *spec.engine.vllm.extra_args,
    ]


def read_parallelism(arguments: Sequence[str]) -> Parallelism:
    """The parallelism that `render_arguments` rendered; of missing and of invalid ones, 1."""
    values = dict(argument.partition("=")[::2] for argument in arguments)
    return Parallelism(
        **{field: read_size(values.get(flag, "")) for field, flag in _PARALLELISM.items()}
    )


def check_arguments(spec: InferenceDeploymentSpec) -> None:
    """Refuse extra arguments that only the operator may set, and those that are SGLang's. Raises
    ReservedArgumentError."""
    for index, argument in enumerate(spec.engine.vllm.extra_args):
        instead = engine_flags().of_sglang.get(_flag(argument))
        if instead is not None:
            field, of_sglang = f"{_EXTRA_ARGS}[{index}]", f"it is SGLang's; {instead}"
            raise ReservedArgumentError(field, argument, argument, "", of_sglang)
    for flag in engine_flags().read(spec.engine.vllm.extra_args):
        refusal = flag.refusal
        if spec.lora is not None and flag.flag.with_lora is not None:
            refusal = f"spec.lora is set; use {flag.flag.with_lora}"
        if refusal is not None:
            field = f"{_EXTRA_ARGS}[{flag.index}]"
            value = "" if flag.text.endswith(flag.value) else flag.value
            raise ReservedArgumentError(field, flag.text, flag.name, value, refusal)


def _parallelism(parallelism: Parallelism, spec: InferenceDeploymentSpec) -> list[str]:
    arguments = [f"--tensor-parallel-size={parallelism.tensor}"]
    if parallelism.pipeline > 1:
        arguments.append(f"--pipeline-parallel-size={parallelism.pipeline}")
    if parallelism.data > 1:
        arguments += [f"--data-parallel-size={parallelism.data}", "--enable-expert-parallel"]
        if spec.lora is not None and spec.lora.is_live:
            # By default one for each rank, which vLLM refuses with runtime updates of adapters.
            arguments.append("--api-server-count=1")
    return arguments


def _group(parallelism: Parallelism) -> list[str]:
    """How the pods of a replica on several nodes find each other, by variables of the
    LeaderWorkerSet controller. vLLM chooses `mp` by itself on CUDA only.

    Source: vLLM docs/serving/parallelism_scaling.md.
    """
    if parallelism.nodes == 1:
        return []
    return [
        f"--nnodes={parallelism.nodes}",
        "--node-rank=$(LWS_WORKER_INDEX)",
        "--master-addr=$(LWS_LEADER_ADDRESS)",
        "--distributed-executor-backend=mp",
    ]


def _memory(spec: InferenceDeploymentSpec, adjustments: EngineAdjustments) -> list[str]:
    """The inputs of the memory plan: the user's values, else those that Tonnage chose."""
    vllm = spec.engine.vllm
    values = {
        "--max-model-len": spec.workload.max_model_len,
        "--gpu-memory-utilization": (
            vllm.gpu_memory_utilization or adjustments.gpu_memory_utilization
        ),
        "--kv-cache-dtype": None if spec.kv_cache_dtype == _AUTO else spec.kv_cache_dtype,
        "--quantization": None if spec.quantization == _AUTO else spec.quantization,
        "--max-num-seqs": vllm.max_num_seqs or adjustments.max_num_seqs,
        "--max-num-batched-tokens": (
            vllm.max_num_batched_tokens or adjustments.max_num_batched_tokens
        ),
    }
    arguments = [f"{flag}={value}" for flag, value in values.items() if value is not None]
    if vllm.enforce_eager:
        arguments.append("--enforce-eager")
    return arguments


def _revision(spec: InferenceDeploymentSpec) -> list[str]:
    revision = loaded_revision(spec.model)
    return [f"--revision={_literal(revision)}"] if revision else []


def _shutdown(replica: Replica) -> list[str]:
    if not drains_by_itself(release_of(replica)):
        return []
    return [f"{SHUTDOWN_FLAG}={drain_seconds(replica.spec.rollout)}"]


def _settings(replica: Replica) -> list[str]:
    """The arguments of compatibility rules, except flags that the user sets."""
    user_flags = {_flag(argument) for argument in replica.spec.engine.vllm.extra_args}
    rule_arguments = replica.option.settings.args
    return [argument for argument in rule_arguments if _flag(argument) not in user_flags]


def _literal(text: str) -> str:
    """Keep Kubernetes from expanding `$(NAME)` to the value of a variable, for example a token."""
    return text.replace("$(", "$$(")


def _flag(argument: str) -> str:
    """The flag of an argument without its value."""
    return argument.partition("=")[0].replace("_", "-")
