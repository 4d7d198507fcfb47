"""The engines that a spec can name: their memory, and their options by a spec."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.fit.engines.sglang import SGLANG_MEMORY
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.model import EngineOptions
from tonnage.fit.options import engine_options
from tonnage.fit.questions.question import MemoryModel
from tonnage.fit.sglang.options import sglang_options


@dataclass(frozen=True, slots=True)
class EngineFit:
    """`read_options` raises fit.options.InvalidOptionError for invalid settings of a spec."""

    memory: MemoryModel
    read_options: Callable[[InferenceDeploymentSpec, Catalog], EngineOptions]


ENGINE_FITS: Final = {
    VLLM_MEMORY.name: EngineFit(VLLM_MEMORY, engine_options),
    SGLANG_MEMORY.name: EngineFit(SGLANG_MEMORY, sglang_options),
}
"""By the name of the engine."""


def memory_for(spec: InferenceDeploymentSpec) -> MemoryModel:
    """The memory of the engine of a spec."""
    return ENGINE_FITS[spec.engine.name].memory


def memory_named(name: str) -> MemoryModel:
    """The memory of the engine of that name."""
    return ENGINE_FITS[name].memory


def options_for(spec: InferenceDeploymentSpec, catalog: Catalog) -> EngineOptions:
    """The options of the engine that memory depends on, by a spec.

    Raises fit.options.InvalidOptionError for invalid settings.
    """
    return ENGINE_FITS[spec.engine.name].read_options(spec, catalog)
