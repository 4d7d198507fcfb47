"""Engine settings that Tonnage chooses where the user did not, and the starts that made it choose.

A start that died of memory is not repeated: the next one differs in one of these settings, or in
its devices (`next_start`).
"""

from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.fit.model import EngineOptions, Parallelism


class Knob(StrEnum):
    """A setting by its name in spec.engine.vllm."""

    GPU_MEMORY_UTILIZATION = "gpuMemoryUtilization"
    MAX_NUM_SEQS = "maxNumSeqs"
    MAX_NUM_BATCHED_TOKENS = "maxNumBatchedTokens"


@dataclass(frozen=True, slots=True)
class EngineAdjustments:
    """Values of spec.engine.vllm that the user left open; None leaves the setting to vLLM."""

    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None

    @property
    def values(self) -> dict[Knob, float | int]:
        """Those that are set."""
        every = {
            Knob.MAX_NUM_BATCHED_TOKENS: self.max_num_batched_tokens,
            Knob.MAX_NUM_SEQS: self.max_num_seqs,
            Knob.GPU_MEMORY_UTILIZATION: self.gpu_memory_utilization,
        }
        return {knob: value for knob, value in every.items() if value is not None}

    def applied_to(self, options: EngineOptions) -> EngineOptions:
        """The options with these settings wherever they have none of the user's."""
        if self == UNADJUSTED:
            return options
        return replace(
            options,
            gpu_memory_utilization=options.gpu_memory_utilization or self.gpu_memory_utilization,
            max_num_seqs=options.max_num_seqs or self.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens or self.max_num_batched_tokens,
        )

    def lowered_to(self, other: "EngineAdjustments") -> "EngineAdjustments":
        """The lower of both values of each setting that either of them sets."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        given = ([value for value in pair if value is not None] for pair in pairs)
        return EngineAdjustments(*(min(values, default=None) for values in given))

    def apart_from(self, other: "EngineAdjustments") -> "EngineAdjustments":
        """The values that the other does not have alike."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return EngineAdjustments(*(mine if mine != theirs else None for mine, theirs in pairs))


UNADJUSTED: Final = EngineAdjustments()
"""Every setting is left to vLLM."""


class ShortfallKind(StrEnum):
    """What memory did not suffice for."""

    FREE_MEMORY = "FreeMemory"
    """vLLM's share of the device: at start less than that was free."""
    KV_CACHE = "KVCache"
    """The KV cache: weights, activations and graphs left too little of the share."""
    ALLOCATION = "Allocation"
    """What torch asked for: the device itself was full."""


@dataclass(frozen=True, slots=True)
class MemoryShortfall:
    """What a start needed of one GPU's memory and found there; None where it did not say.

    With FREE_MEMORY `needed_bytes` is its share of the device, with KV_CACHE the least KV cache,
    with ALLOCATION the one allocation that failed: what lacks in all may be more.
    """

    kind: ShortfallKind
    needed_bytes: int | None
    available_bytes: int | None

    @property
    def lacking_bytes(self) -> int:
        """What lacked at least, as far as it is known."""
        if self.needed_bytes is None or self.available_bytes is None:
            return 0
        return max(0, self.needed_bytes - self.available_bytes)


@dataclass(frozen=True, slots=True)
class Tried:
    """A start that died of memory: on which devices, split how, with which adjustments.

    `device_bytes` is the memory of one of the devices as torch reports it. `shortfall` is None
    where vLLM's words do not say what lacked.
    """

    accelerator_id: str
    device_bytes: int
    parallelism: Parallelism
    adjustments: EngineAdjustments = UNADJUSTED
    shortfall: MemoryShortfall | None = None
