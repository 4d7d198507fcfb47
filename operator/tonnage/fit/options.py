"""The vLLM options that a spec amounts to, as far as memory depends on them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import parse_version
from tonnage.fit.model import EngineOptions


class InvalidOptionError(ValueError):
    """An engine setting that cannot be: names the field, the value and what to write instead."""


_PLACEMENT: Final = "the operator chooses it; steer it with spec.placement"
_FIELD_OF: Final = {
    "--model": "use spec.model.source",
    "--revision": "use spec.model.source.huggingFace.revision",
    "--served-model-name": "use spec.model.name",
    "--max-model-len": "use spec.workload.maxModelLen",
    "--kv-cache-dtype": "use spec.kvCacheDtype",
    "--quantization": "use spec.quantization",
    "--gpu-memory-utilization": "use spec.engine.vllm.gpuMemoryUtilization",
    "--max-num-seqs": "use spec.engine.vllm.maxNumSeqs",
    "--max-num-batched-tokens": "use spec.engine.vllm.maxNumBatchedTokens",
    "--enforce-eager": "use spec.engine.vllm.enforceEager",
    "--tensor-parallel-size": _PLACEMENT,
    "--pipeline-parallel-size": _PLACEMENT,
    "--data-parallel-size": "use spec.replicas",
    "--kv-cache-memory-bytes": "use spec.engine.vllm.gpuMemoryUtilization",
    "--nnodes": _PLACEMENT,
    "--host": "the operator sets it",
    "--port": "the operator sets it",
    "--config": "write its settings into the spec: a file can hide any of them",
}
"""Flags that the operator sets or that would undo its memory calculation."""

_SHORT: Final = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
}
_SWITCHES: Final[Mapping[str, Mapping[str, bool]]] = {
    "--enable-expert-parallel": {"enable_expert_parallel": True},
    "--language-model-only": {"language_model_only": True},
    "--enable-chunked-prefill": {"enable_chunked_prefill": True},
    "--no-enable-chunked-prefill": {"enable_chunked_prefill": False},
    "--enable-prefix-caching": {"enable_prefix_caching": True},
    "--no-enable-prefix-caching": {"enable_prefix_caching": False},
    "--disable-hybrid-kv-cache-manager": {"hybrid_kv_cache": False},
    "--mm-encoder-tp-mode=data": {"data_parallel_encoder": True},
    "--performance-mode=throughput": {"throughput_batch": True},
}
"""Arguments without a field of their own that memory or legality depends on."""

_ABBREVIATED: Final = 5
"""argparse takes a unique beginning of a flag; vLLM itself refuses shorter ones as ambiguous."""


def engine_options(spec: InferenceDeploymentSpec, catalog: Catalog) -> EngineOptions:
    """The options that the spec asks for; unset ones stay None, vLLM's default.

    Raises InvalidOptionError for a version that is none and for extraArgs that contradict a field.
    """
    engine = spec.engine.vllm
    version = engine.version or f"v{catalog.default_release}"
    try:
        parse_version(version)
    except ValueError as error:
        raise InvalidOptionError(f"spec.engine.vllm.version: {error}") from error
    switched: dict[str, Any] = {}
    for argument in _arguments(engine.extra_args):
        switched |= _SWITCHES.get(argument, {})
    return EngineOptions(
        vllm_version=version,
        max_model_len=spec.workload.max_model_len,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        kv_cache_dtype=spec.kv_cache_dtype,
        quantization=spec.quantization,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        enforce_eager=engine.enforce_eager,
        **switched,
    )


def _arguments(extra_args: Sequence[str]) -> Iterator[str]:
    """Each flag with its value (`--flag=value`), checked against those that have a field.

    Raises InvalidOptionError.
    """
    for argument, following in pairwise([*extra_args, ""]):
        if not argument.startswith("-"):
            continue
        written, equals, value = argument.partition("=")
        # vLLM takes underscores for dashes (vllm/utils/argparse_utils.py FlexibleArgumentParser).
        flag = _SHORT.get(written, written.replace("_", "-"))
        owned = _owned_flag(flag)
        if owned is not None:
            raise InvalidOptionError(
                f"spec.engine.vllm.extraArgs has {written[:80]!r}: {_FIELD_OF[owned]}"
            )
        if not equals and following and not following.startswith("-"):
            value = following
        yield f"{flag}={value}" if value else flag


def _owned_flag(flag: str) -> str | None:
    """The flag of _FIELD_OF that this is, or is an abbreviation of."""
    if flag in _FIELD_OF:
        return flag
    if len(flag) < _ABBREVIATED:
        return None
    return next((owned for owned in _FIELD_OF if owned.startswith(flag)), None)
