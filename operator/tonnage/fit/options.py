"""The vLLM options that a spec amounts to, as far as memory depends on them."""

from collections.abc import Iterator, Sequence
from typing import Final

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
_EXPERT_PARALLEL: Final = "--enable-expert-parallel"
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
    flags = frozenset(_flags(engine.extra_args))
    return EngineOptions(
        vllm_version=version,
        max_model_len=spec.workload.max_model_len,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        kv_cache_dtype=spec.kv_cache_dtype,
        quantization=spec.quantization,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        enforce_eager=engine.enforce_eager,
        enable_expert_parallel=_EXPERT_PARALLEL in flags,
    )


def _flags(extra_args: Sequence[str]) -> Iterator[str]:
    """The flags among the arguments, each checked against those that have a field."""
    for argument in extra_args:
        if not argument.startswith("-"):
            continue
        written = argument.partition("=")[0]
        # vLLM takes underscores for dashes (vllm/utils/argparse_utils.py FlexibleArgumentParser).
        flag = _SHORT.get(written, written.replace("_", "-"))
        owned = _owned_flag(flag)
        if owned is not None:
            raise InvalidOptionError(
                f"spec.engine.vllm.extraArgs has {written[:80]!r}: {_FIELD_OF[owned]}"
            )
        yield flag


def _owned_flag(flag: str) -> str | None:
    """The flag of _FIELD_OF that this is, or is an abbreviation of."""
    if flag in _FIELD_OF:
        return flag
    if len(flag) < _ABBREVIATED:
        return None
    return next((owned for owned in _FIELD_OF if owned.startswith(flag)), None)
