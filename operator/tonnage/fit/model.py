"""What goes into the memory calculation and what comes out of it. All figures are for one GPU."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The vLLM options memory depends on; None means vLLM's default of the version and device."""

    vllm_version: str
    max_model_len: int
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str = "auto"
    quantization: str = "auto"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    enable_expert_parallel: bool = False


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one replica is split over GPUs of one node."""

    tensor: int = 1
    pipeline: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline


class MemoryTerm(StrEnum):
    """A part of a device's memory, as it is named in status and on the terminal."""

    WEIGHTS = "weights"
    ACTIVATION = "activation"
    NON_TORCH = "non-torch"
    GRAPHS = "graphs"
    KV_CACHE = "KV cache"


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """It fits: where the bytes of one GPU go, and what is left for the KV cache.

    `device_bytes` x utilization = `budget_bytes` = weights + activation + non_torch + graphs +
    kv_cache. `kv_bytes_per_token` is what one token of context costs on one GPU (sliding-window
    layers left out), `kv_cache_tokens` how many tokens one replica holds at a time,
    `required_tokens` how many were asked for.
    """

    device_bytes: int
    budget_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    kv_cache_bytes: int
    kv_bytes_per_token: int
    kv_cache_tokens: int
    required_tokens: int


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """One device lacks room: `term` needs `needed_bytes`, `available_bytes` are left for it."""

    term: MemoryTerm
    needed_bytes: int
    available_bytes: int
    device_bytes: int


@dataclass(frozen=True, slots=True)
class IllegalParallelism:
    """vLLM refuses this split: `message` names the numbers, `rule` is a stable CamelCase word."""

    rule: str
    message: str


FitVerdict = MemoryFit | DoesNotFit | IllegalParallelism
