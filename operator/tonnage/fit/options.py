"""The vLLM options of a spec that memory depends on."""

from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.vllm.flags import engine_flags
from tonnage.catalog.vllm.releases import parse_version
from tonnage.fit.model import EngineOptions


class InvalidOptionError(ValueError):
    """An invalid engine setting; the message names field, value and a valid alternative."""


def engine_options(spec: InferenceDeploymentSpec, catalog: Catalog) -> EngineOptions:
    """The options of the spec; unset ones stay None, vLLM's default.

    `render.template.check_template` has refused arguments that contradict a field. Raises
    InvalidOptionError for an invalid version.
    """
    engine = spec.engine.vllm
    version = engine.version or f"v{catalog.default_release}"
    try:
        parse_version(version)
    except ValueError as error:
        raise InvalidOptionError(f"spec.engine.vllm.version: {error}") from error
    extra_options: dict[str, Any] = {}
    for argument in engine_flags().read(engine.extra_args):
        extra_options |= argument.flag.sets.get(argument.value, {})
    return EngineOptions(
        vllm_version=version,
        max_model_len=spec.workload.max_model_len,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        kv_cache_dtype=spec.kv_cache_dtype,
        quantization=spec.quantization,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        enforce_eager=engine.enforce_eager,
        **extra_options,
    )
