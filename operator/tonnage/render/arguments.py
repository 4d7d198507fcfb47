"""The arguments of `vllm serve`.

Each is one item of a list that no shell ever sees. A value stands behind an equals sign, because
one that begins with a dash would be taken for a flag of its own.
"""

from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.engine import parse_version
from tonnage.fit.model import Parallelism
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.render.defaults import defaults
from tonnage.render.errors import ReservedArgumentError
from tonnage.render.replica import Replica
from tonnage.render.source import loaded_model, loaded_revision, served_name

_AUTO: Final = "auto"
_EXTRA_ARGS: Final = "spec.engine.vllm.extraArgs"


def arguments(replica: Replica) -> list[str]:
    """What follows `vllm serve`; the user's arguments come last. What is vLLM's own default is left
    out, so that the release decides."""
    spec, name = replica.spec, replica.owner.name
    return [
        _literal(loaded_model(spec, name)),
        f"--served-model-name={_literal(served_name(spec, name))}",
        *_revision(spec),
        f"--port={defaults().server.port}",
        *_shutdown(replica.vllm_version),
        *_parallelism(replica.option.parallelism),
        *_memory(spec, replica.option.adjustments),
        *_settings(replica),
        *spec.engine.vllm.extra_args,
    ]


def check_arguments(spec: InferenceDeploymentSpec) -> None:
    """Refuse extra arguments that would take the ground away from what was planned.

    Raises ReservedArgumentError.
    """
    for index, argument in enumerate(spec.engine.vllm.extra_args):
        instead = _reserved(argument)
        if instead:
            raise ReservedArgumentError(f"{_EXTRA_ARGS}[{index}]", argument, instead)


def _parallelism(parallelism: Parallelism) -> list[str]:
    found = [f"--tensor-parallel-size={parallelism.tensor}"]
    if parallelism.pipeline > 1:
        found.append(f"--pipeline-parallel-size={parallelism.pipeline}")
    return found


def _memory(spec: InferenceDeploymentSpec, adjustments: EngineAdjustments) -> list[str]:
    """What the memory plan was made with: the user's values, and Tonnage's where there are none."""
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
    found = [f"{flag}={value}" for flag, value in values.items() if value is not None]
    if vllm.enforce_eager:
        found.append("--enforce-eager")
    return found


def _revision(spec: InferenceDeploymentSpec) -> list[str]:
    revision = loaded_revision(spec.model.source)
    return [f"--revision={_literal(revision)}"] if revision else []


def _shutdown(version: str) -> list[str]:
    if parse_version(version) < parse_version(defaults().since.shutdown_timeout):
        return []
    return [f"--shutdown-timeout={defaults().server.shutdown_timeout_seconds}"]


def _settings(replica: Replica) -> list[str]:
    """What compatibility rules ask for, but for flags that the user gives a value."""
    given = {_flag(argument) for argument in replica.spec.engine.vllm.extra_args}
    return [argument for argument in replica.option.settings.args if _flag(argument) not in given]


def _literal(text: str) -> str:
    """Keep Kubernetes from replacing `$(NAME)` by a variable's value, a token's for example."""
    return text.replace("$(", "$$(")


def _reserved(argument: str) -> str | None:
    """What to use instead of the argument, None when it is free.

    vLLM's parser takes underscores for dashes and any prefix of a long flag that is not ambiguous.
    """
    flag = _flag(argument)
    flags = defaults().reserved_arguments.flags
    if flag in flags:
        return flags[flag]
    if not flag.startswith("--") or len(flag) <= len("--"):
        return None
    return next((instead for long, instead in flags.items() if long.startswith(flag)), None)


def _flag(argument: str) -> str:
    """The flag of an argument without its value."""
    return argument.partition("=")[0].replace("_", "-")
