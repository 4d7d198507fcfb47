"""The options of a spec for SGLang that memory depends on."""

from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.sglang_arguments import (
    GivenArgument,
    SglangArgumentError,
    load_sglang_arguments,
)
from tonnage.catalog.sglang_server import load_sglang_server
from tonnage.fit.model import EngineOptions
from tonnage.fit.options import InvalidOptionError

_EXTRA_ARGS: Final = "spec.engine.sglang.extraArgs"
_AUTO: Final = "auto"

_COUNTED: Final = {
    "max-running-requests": "max_num_seqs",
    "chunked-prefill-size": "max_num_batched_tokens",
}
"""Arguments with a number that the calculation follows, and their fields of EngineOptions."""


def sglang_cache_dtype(spec: InferenceDeploymentSpec) -> str:
    """--kv-cache-dtype of a spec: vLLM's fp8 is fp8_e4m3."""
    return "fp8_e4m3" if spec.kv_cache_dtype == "fp8" else spec.kv_cache_dtype


def sglang_options(spec: InferenceDeploymentSpec, catalog: Catalog) -> EngineOptions:
    """The options of the spec and of its extra arguments, under the names that vLLM has for them.

    Raises InvalidOptionError for a value that SGLang refuses, and for adapters, which are not
    calculated.
    """
    settings, server = spec.engine.sglang, load_sglang_server()
    assert settings is not None, "the spec names another engine"
    if settings.version not in (None, f"v{server.version}"):
        raise InvalidOptionError(
            f"spec.engine.sglang.version: {settings.version} is not known; expected"
            f" v{server.version}"
        )
    if spec.lora is not None:
        raise InvalidOptionError(
            "spec.lora: adapters are not supported with SGLang; run the model with vLLM"
            " (spec.engine.type: VLLM, without spec.engine.sglang), or remove spec.lora"
        )
    table = load_sglang_arguments()
    quantizations = table.arguments["quantization"].choices
    if spec.quantization not in {_AUTO, *quantizations}:
        known = ", ".join(sorted(quantizations))
        raise InvalidOptionError(
            f"spec.quantization: SGLang has no {spec.quantization}; expected auto, {known}"
        )
    try:
        given = list(table.read(settings.extra_args))
    except SglangArgumentError as error:
        text = settings.extra_args[error.index][:80]
        raise InvalidOptionError(f"{_EXTRA_ARGS}[{error.index}]: {text!r}: {error}") from None
    counted: dict[str, Any] = {
        _COUNTED[one.name]: _read_count(one) for one in given if one.name in _COUNTED
    }
    return EngineOptions(
        release=f"v{catalog.default_release}",
        max_model_len=spec.workload.max_model_len,
        gpu_memory_utilization=settings.mem_fraction_static,
        kv_cache_dtype=sglang_cache_dtype(spec),
        quantization=spec.quantization,
        stated=frozenset(
            (*(f"--{one.name}" for one in given), *(one.name for one in settings.env))
        ),
        uncounted=tuple(
            f"{_EXTRA_ARGS}[{one.index}] --{one.name}, which brings {server.uncounted[one.name]}"
            for one in given
            if one.name in server.uncounted
        ),
        **counted,
    )


def _read_count(given: GivenArgument) -> int:
    text = given.values[0]
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise InvalidOptionError(
            f"{_EXTRA_ARGS}[{given.index}]: --{given.name} {text[:80]!r}: expected a number of"
            " at least 1"
        )
    return int(text)
