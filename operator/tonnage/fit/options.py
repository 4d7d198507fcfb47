"""The vLLM options of a spec that memory depends on."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import Lora
from tonnage.api.pod import EnvVar
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.vllm.flags import COUNTED, GivenFlag, engine_flags
from tonnage.catalog.vllm.lora import load_lora_support
from tonnage.catalog.vllm.releases import parse_version
from tonnage.fit.flag_values import READERS
from tonnage.fit.model import EngineOptions, Parallelism

_EXTRA_ARGS: Final = "spec.engine.vllm.extraArgs"

DEFAULT_RANK: Final = 16
"""vLLM's own (vllm/config/lora.py max_lora_rank)."""


class InvalidOptionError(ValueError):
    """An invalid engine setting; the message names field, value and a valid alternative."""


def engine_options(spec: InferenceDeploymentSpec, catalog: Catalog) -> EngineOptions:
    """The options of the spec and of its extra arguments; unset ones stay None, vLLM's default.

    `workloads.pod.template.check_template` has refused arguments that contradict a field. Raises
    InvalidOptionError for an invalid version, and for a value that vLLM could not read.
    """
    fields = _options_of_fields(spec, catalog)
    engine = spec.engine.vllm
    settings: dict[str, Any] = {}
    uncounted: list[str] = []
    for given in engine_flags().read(engine.extra_args):
        read = _read_settings(given)
        if given.flag.option is not None:
            settings.pop(given.flag.option, None)  # of a repeated flag vLLM takes the last value
        settings |= read
        effect = given.flag.uncounted
        if effect is not None and not read:
            uncounted.append(f"{_EXTRA_ARGS}[{given.index}] {given.name}, which brings {effect}")
    return EngineOptions(
        **{**fields, **settings},
        stated=_counted_variables(engine.env),
        uncounted=tuple(uncounted),
    )


def for_parallelism(options: EngineOptions, parallelism: Parallelism) -> EngineOptions:
    """The options that a replica of this parallelism starts with: data-parallel ranks share the
    experts."""
    if parallelism.data == 1:
        return options
    return replace(options, enable_expert_parallel=True)


def _options_of_fields(spec: InferenceDeploymentSpec, catalog: Catalog) -> dict[str, Any]:
    """The options of the spec without its extra arguments and variables."""
    engine = spec.engine.vllm
    version = engine.version or f"v{catalog.default_release}"
    try:
        parse_version(version)
    except ValueError as error:
        raise InvalidOptionError(f"spec.engine.vllm.version: {error}") from error
    return {
        "release": version,
        "max_model_len": spec.workload.max_model_len,
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "kv_cache_dtype": spec.kv_cache_dtype,
        "quantization": spec.quantization,
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "enforce_eager": engine.enforce_eager,
        **_adapter_options(spec.lora),
    }


def _adapter_options(lora: Lora | None) -> dict[str, Any]:
    """The options for adapters. Raises InvalidOptionError where the rank of the buffers is unknown
    or none that vLLM reserves."""
    if lora is None:
        return {}
    return {
        "enable_lora": True,
        "max_loras": lora.slots,
        "max_lora_rank": buffer_rank(lora),
        "lora_target_modules": tuple(sorted(set(lora.target_modules))),
        "fully_sharded_loras": lora.fully_sharded,
    }


def buffer_rank(lora: Lora) -> int:
    """The rank of the buffers: `maxRank`, else the smallest that holds every adapter.

    Raises InvalidOptionError.
    """
    ranks = load_lora_support().ranks
    expected = ", ".join(map(str, ranks))
    if lora.max_rank is not None:
        if lora.max_rank not in ranks:
            raise InvalidOptionError(f"spec.lora.maxRank: {lora.max_rank}: expected {expected}")
        return lora.max_rank
    largest = 1
    for index, adapter in enumerate(lora.adapters):
        if adapter.rank is None:
            field, volume = f"spec.lora.adapters[{index}]", adapter.source.persistent_volume_claim
            read = ""
            if volume is not None:
                path = f" --path {volume.path}" if volume.path else ""
                command = f"tonnage inspect --pvc {volume.claim_name}{path}"
                read = f", or source.persistentVolumeClaim.facts (`{command}` collects them)"
            raise InvalidOptionError(
                f"{field}.rank: the rank of adapter {adapter.name} is unknown; set it{read}, or set"
                f" spec.lora.maxRank to {expected}"
            )
        largest = max(largest, adapter.rank)
    if not lora.adapters:
        return DEFAULT_RANK
    return next(rank for rank in ranks if rank >= largest)


def _read_settings(given: GivenFlag) -> dict[str, Any]:
    """The options that a flag sets; none for `--flag.key`, which gives a part of a value."""
    flag = given.flag
    if flag.option is None or flag.value is None or given.key:
        return dict(flag.sets.get(given.value, {}))
    try:
        value = READERS[flag.value](given.value)
    except argparse.ArgumentTypeError as error:
        raise InvalidOptionError(f"{_EXTRA_ARGS}[{given.index}]: {given.name} {error}") from None
    return {flag.option: value} if value else {}


def _counted_variables(variables: Sequence[EnvVar]) -> frozenset[str]:
    """Variables by which vLLM changes what the calculation says, as NAME=value."""
    counted = engine_flags().variables
    return frozenset(
        f"{variable.name}={variable.value}"
        for variable in variables
        if counted.get(variable.name) == COUNTED
    )
