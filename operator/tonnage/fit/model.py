"""What goes into the memory calculation and what comes out of it. All figures are for one GPU."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The vLLM options memory depends on; None means vLLM's default of the version and device.

    `speculative_tokens` are drafted in a step by the model's own layers for multi-token prediction,
    0 without them. `kv_cache_memory_bytes` sets the KV cache's memory instead of what is left of
    the budget. `cpu_offload_bytes` of the weights stay in the host's memory.
    `data_parallel_encoder` keeps a whole vision tower on every GPU (--mm-encoder-tp-mode data),
    `language_model_only` loads none. `offline` are the defaults of the LLM class, not the server's.
    `throughput_batch` doubles the default batch (--performance-mode throughput). Without
    `graphs_in_budget` graphs come out of what utilization leaves free, whatever the release does by
    itself (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). `stated` are other arguments of the server
    and its environment (NAME=value), which fulfil what a compatibility rule asks to be set.
    """

    vllm_version: str
    max_model_len: int
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str = "auto"
    quantization: str = "auto"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    enable_expert_parallel: bool = False
    dtype: str = "auto"
    speculative_tokens: int = 0
    kv_cache_memory_bytes: int | None = None
    cpu_offload_bytes: int = 0
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool | None = None
    hybrid_kv_cache: bool = True
    block_size: int | None = None
    data_parallel_encoder: bool = False
    language_model_only: bool = False
    offline: bool = False
    throughput_batch: bool = False
    graphs_in_budget: bool = True
    stated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one replica is split over GPUs of one node.

    `data` ranks each serve requests of their own with a whole copy of the model, but for its
    experts, which all of them share.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.data


class MemoryTerm(StrEnum):
    """A part of a device's memory, as it is named in status and on the terminal."""

    WEIGHTS = "weights"
    ACTIVATION = "activation"
    NON_TORCH = "non-torch"
    GRAPHS = "graphs"
    CORRECTION = "correction"
    KV_CACHE = "KV cache"


@dataclass(frozen=True, slots=True)
class MemoryAccount:
    """Where the bytes of one GPU go, whether they suffice or not.

    `device_bytes` x utilization = `budget_bytes` = weights + activation + non_torch + graphs +
    correction + kv_cache, which is negative when the others exceed the budget. `correction_bytes`
    is what starts like this one were seen to take beyond the calculation, negative where they took
    less, 0 where nothing was learnt. `graph_bytes` are 0 where the
    release takes graphs out of what utilization leaves free. `request_kv_bytes` is what one request
    of `max_model_len` holds, `kv_bytes_per_token` what one more token of context costs (sliding
    windows and fixed states left out), `kv_cache_tokens` how many tokens one replica holds at a
    time in requests of `max_model_len`. `needed_kv_bytes` is the least KV cache that holds what is
    asked for, blocks that vLLM keeps for itself included. `band_bytes` is the uncertainty of
    `kv_cache_bytes`.
    """

    device_bytes: int
    budget_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    kv_cache_bytes: int
    request_kv_bytes: int
    kv_bytes_per_token: int
    kv_cache_tokens: int
    needed_kv_bytes: int = 0
    band_bytes: int = 0
    correction_bytes: int = 0

    @property
    def margin_bytes(self) -> int:
        """KV cache beyond what is asked for, negative when it lacks."""
        return self.kv_cache_bytes - self.needed_kv_bytes


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """It fits: the KV cache holds the `required_tokens` that were asked for.

    `tight` when what is left beyond them lies within the account's uncertainty.
    """

    account: MemoryAccount
    required_tokens: int
    tight: bool = False


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """One device lacks room: `term` needs `needed_bytes`, `available_bytes` are left for it.

    `beside_budget` when that room is what utilization leaves free, not what vLLM may use.
    """

    term: MemoryTerm
    needed_bytes: int
    available_bytes: int
    account: MemoryAccount
    beside_budget: bool = False

    @property
    def narrowly(self) -> bool:
        """Whether what lacks in the budget lies within the account's uncertainty."""
        return not self.beside_budget and -self.account.margin_bytes < self.account.band_bytes


@dataclass(frozen=True, slots=True)
class IllegalParallelism:
    """vLLM refuses this split: `message` names the numbers, `rule` is a stable CamelCase word."""

    rule: str
    message: str


FitVerdict = MemoryFit | DoesNotFit | IllegalParallelism
