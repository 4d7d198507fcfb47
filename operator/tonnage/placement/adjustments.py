"""Engine settings that Tonnage chooses where the user did not, and the failed starts behind them.

A start that ran out of memory is not repeated: the next one differs in one of these settings, or
in its devices (`next_start`).
"""

from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from typing import Final

from tonnage.fit.model import EngineOptions, Parallelism


class EngineSetting(StrEnum):
    """A setting by its name in the spec of the default engine."""

    GPU_MEMORY_UTILIZATION = "gpuMemoryUtilization"
    MAX_NUM_SEQS = "maxNumSeqs"
    MAX_NUM_BATCHED_TOKENS = "maxNumBatchedTokens"


@dataclass(frozen=True, slots=True)
class EngineAdjustments:
    """Values that the user left open; None leaves the setting to the engine."""

    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None

    @property
    def values(self) -> dict[EngineSetting, float | int]:
        """Those that are set."""
        every = {
            EngineSetting.MAX_NUM_BATCHED_TOKENS: self.max_num_batched_tokens,
            EngineSetting.MAX_NUM_SEQS: self.max_num_seqs,
            EngineSetting.GPU_MEMORY_UTILIZATION: self.gpu_memory_utilization,
        }
        return {setting: value for setting, value in every.items() if value is not None}

    def applied_to(self, options: EngineOptions) -> EngineOptions:
        """Return the options with these settings wherever the user set none."""
        if self == UNADJUSTED:
            return options
        return replace(
            options,
            gpu_memory_utilization=options.gpu_memory_utilization or self.gpu_memory_utilization,
            max_num_seqs=options.max_num_seqs or self.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens or self.max_num_batched_tokens,
        )

    def minimum(self, other: "EngineAdjustments") -> "EngineAdjustments":
        """Return the lower of both values of each setting that either of them sets."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        set_values = ([value for value in pair if value is not None] for pair in pairs)
        return EngineAdjustments(*(min(values, default=None) for values in set_values))

    def difference(self, other: "EngineAdjustments") -> "EngineAdjustments":
        """Return the values that differ from those of the other."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return EngineAdjustments(*(mine if mine != theirs else None for mine, theirs in pairs))


UNADJUSTED: Final = EngineAdjustments()
"""Every setting is left to the engine."""


class ShortfallKind(StrEnum):
    """Which request for memory failed."""

    FREE_MEMORY = "FreeMemory"
    """The engine's share of the device: less than that was free at the start."""
    KV_CACHE = "KVCache"
    """The KV cache: weights, activations and graphs left too little of the share."""
    ALLOCATION = "Allocation"
    """An allocation of torch: the device itself was full."""


@dataclass(frozen=True, slots=True)
class MemoryShortfall:
    """Memory of one GPU that a start needed and that was available; None where unreported.

    With FREE_MEMORY `needed_bytes` is its share of the device, with KV_CACHE the smallest KV cache,
    with ALLOCATION the one allocation that failed: the total shortage may be larger.
    """

    kind: ShortfallKind
    needed_bytes: int | None
    available_bytes: int | None

    @property
    def lacking_bytes(self) -> int:
        """The least shortage in bytes, 0 when unknown."""
        if self.needed_bytes is None or self.available_bytes is None:
            return 0
        return max(0, self.needed_bytes - self.available_bytes)


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A start that ran out of memory: its devices, parallelism and adjustments.

    `device_bytes` is the memory of one of the devices as torch reports it. `shortfall` is None
    where the log does not say what failed, `engine` where the spec names it.
    """

    accelerator_id: str
    device_bytes: int
    parallelism: Parallelism
    adjustments: EngineAdjustments = UNADJUSTED
    shortfall: MemoryShortfall | None = None
    engine: str | None = None

    def is_of(self, engine: str, accelerator_id: str) -> bool:
        """Whether the start was on devices of this kind, and with this engine."""
        return self.accelerator_id == accelerator_id and self.engine in (None, engine)
