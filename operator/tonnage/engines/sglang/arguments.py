"""The arguments of `python3 -m sglang.launch_server`.

Each is one item of a list that no shell parses. A value follows an equals sign, so that one with a
leading dash is not taken for an argument.
"""

from collections.abc import Sequence
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.sglang_arguments import SglangArgumentError, load_sglang_arguments
from tonnage.catalog.sglang_server import load_sglang_server
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import ReservedArgumentError
from tonnage.engines.model_source import loaded_model, loaded_revision, served_name
from tonnage.engines.quantity import read_size
from tonnage.engines.replica import Replica
from tonnage.fit.model import Parallelism
from tonnage.fit.sglang.options import sglang_cache_dtype
from tonnage.placement.adjustments import EngineAdjustments

_AUTO: Final = "auto"
_EXTRA_ARGS: Final = "spec.engine.sglang.extraArgs"
_TENSOR: Final = "--tp-size"
_STAGES: Final = "--pp-size"
_NODES: Final = "--nnodes"

_RENDEZVOUS_PORT: Final = 20000
"""Where the pods of a replica meet, on the first one. Source: docs/references/multi_node_deployment
of SGLang; any free port serves."""


def render_arguments(replica: Replica) -> list[str]:
    """The arguments, the user's last. Defaults of SGLang are left out, but for its host, which no
    probe reaches, and its metrics, which are off."""
    spec, name = replica.spec, replica.owner.name
    revision, stages = loaded_revision(spec.model), replica.option.parallelism.pipeline
    values = {
        "--model-path": _literal(loaded_model(spec, name, replica.checkpoint.revision)),
        "--served-model-name": _literal(served_name(spec, name)),
        "--revision": _literal(revision) if revision else None,
        "--host": "0.0.0.0",  # noqa: S104 - the probes and the Service reach the pod by its IP
        "--port": load_defaults().server.port,
        _TENSOR: replica.option.parallelism.tensor,
        _STAGES: stages if stages > 1 else None,
        **_group(replica.option.parallelism),
        "--context-length": spec.workload.max_model_len,
        **_memory(spec, replica.option.adjustments),
        "--kv-cache-dtype": None if spec.kv_cache_dtype == _AUTO else sglang_cache_dtype(spec),
        "--quantization": None if spec.quantization == _AUTO else spec.quantization,
    }
    return [
        *(f"{flag}={value}" for flag, value in values.items() if value is not None),
        "--enable-metrics",
        *spec.engine.settings.extra_args,
    ]


def _group(parallelism: Parallelism) -> dict[str, str | int]:
    """How the pods of a replica on several nodes find each other, by variables of the
    LeaderWorkerSet controller. All pods have the same arguments; only the first one serves."""
    if parallelism.nodes == 1:
        return {}
    return {
        _NODES: parallelism.nodes,
        "--node-rank": "$(LWS_WORKER_INDEX)",
        "--dist-init-addr": f"$(LWS_LEADER_ADDRESS):{_RENDEZVOUS_PORT}",
    }


def _memory(
    spec: InferenceDeploymentSpec, adjustments: EngineAdjustments
) -> dict[str, float | int | None]:
    """The settings of the memory plan: the user's value, else those that Tonnage chose."""
    settings = spec.engine.sglang
    own_share = settings.mem_fraction_static if settings else None
    return {
        "--mem-fraction-static": own_share or adjustments.gpu_memory_utilization,
        "--max-running-requests": adjustments.max_num_seqs,
        "--chunked-prefill-size": adjustments.max_num_batched_tokens,
    }


def read_parallelism(arguments: Sequence[str]) -> Parallelism:
    """The parallelism that `render_arguments` rendered; 1 without it."""
    values = dict(argument.partition("=")[::2] for argument in arguments)
    tensor, stages, nodes = (read_size(values.get(flag, "")) for flag in (_TENSOR, _STAGES, _NODES))
    return Parallelism(tensor, stages, nodes=nodes)


def check_arguments(spec: InferenceDeploymentSpec) -> None:
    """Refuse extra arguments that only the operator may set, and those that are vLLM's. Raises
    ReservedArgumentError.

    What else SGLang's parser refuses is an error of the options, which are read next.
    """
    server, arguments = load_sglang_server(), spec.engine.settings.extra_args
    try:
        for given in load_sglang_arguments().read(arguments):
            instead = server.explain_reserved(given)
            if instead is not None:
                text = arguments[given.index]
                value = "" if "=" in text else " ".join(given.values)
                field, flag = f"{_EXTRA_ARGS}[{given.index}]", f"--{given.name}"
                raise ReservedArgumentError(field, text, flag, value, instead)
    except SglangArgumentError as error:
        text = arguments[error.index]
        flag = text.partition("=")[0].replace("_", "-")
        instead = server.of_vllm.get(flag.removeprefix("--"))
        if instead is not None:
            field, of_vllm = f"{_EXTRA_ARGS}[{error.index}]", f"it is vLLM's; {instead}"
            raise ReservedArgumentError(field, text, text, "", of_vllm) from None


def _literal(text: str) -> str:
    """Keep Kubernetes from expanding `$(NAME)` to the value of a variable, for example a token."""
    return text.replace("$(", "$$(")
