"""Input and output of the memory calculation. All figures are for one GPU."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options that memory depends on, by the names that vLLM has for them; None means the
    engine's default for release and device.

    `release` is that of the catalogue by which weights, layouts and defaults are calculated: the
    one that runs, or for an engine without such tables that of vLLM which is the default.
    `speculative_tokens` is the number of tokens that the model's own MTP layers draft in a step, 0
    without MTP. `kv_cache_memory_bytes` sets the KV cache's memory instead of the rest of the
    budget. `cpu_offload_bytes` of the weights stay in the host's memory. `data_parallel_encoder`
    keeps a whole vision encoder on every GPU (--mm-encoder-tp-mode data), `language_model_only`
    loads none. `offline` uses the defaults of the LLM class, not the server's. `throughput_batch`
    doubles the default batch (--performance-mode throughput). Without `graphs_in_budget` graphs use
    memory outside the budget, whatever the release's default
    (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). With `enable_lora`, buffers for `max_loras`
    adapters of `max_lora_rank` take memory, in all layers or in `lora_target_modules`; ranks divide
    more of them with `fully_sharded_loras`. `context_overrides` is a JSON object that replaces
    fields of config.json about the length of the context. `cuda_loader`: weights are loaded by a
    library for NVIDIA's GPUs, which changes no memory. `stated` are the server's other arguments
    and environment variables (NAME=value), which satisfy compatibility rules that require them,
    `uncounted` are those that bring memory which the calculation leaves out, as phrases.
    """

    release: str
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
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    lora_target_modules: tuple[str, ...] = ()
    fully_sharded_loras: bool = False
    context_overrides: str = ""
    cuda_loader: bool = False
    stated: frozenset[str] = frozenset()
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Footprint:
    """What one replica takes of a pool: `gpus_per_node` GPUs on each of so many `nodes`."""

    gpus_per_node: int
    nodes: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.gpus_per_node * self.nodes

    def pods_on(self, free: int) -> int:
        """Pods with `gpus_per_node` GPUs that can start on a node with `free` ones."""
        return free // self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Parallelism:
    """The parallelism of one replica, on the GPUs of one node or equally divided over `nodes`.

    Each of `data` ranks serves its own requests with a whole copy of the model, except for the
    experts, which all of them share.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    nodes: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.data

    @property
    def footprint(self) -> Footprint:
        """The GPUs of one replica by node."""
        return Footprint(self.gpus // self.nodes, self.nodes)


class MemoryTerm(StrEnum):
    """A part of a device's memory, by its name in status and on the terminal."""

    WEIGHTS = "weights"
    LORA = "LoRA"
    ACTIVATION = "activation"
    NON_TORCH = "non-torch"
    GRAPHS = "graphs"
    CORRECTION = "correction"
    KV_CACHE = "KV cache"


@dataclass(frozen=True, slots=True)
class StageMemory:
    """What differs between the pipeline stages: on one GPU of a stage with so many `layers`, the
    weights, the memory that is left for the KV cache, the tokens that it holds, and the buffers for
    LoRA adapters."""

    layers: int
    weights_bytes: int
    kv_cache_bytes: int
    kv_cache_tokens: int
    lora_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryAccount:
    """The bytes of one GPU by term, whether they suffice or not.

    Of several pipeline stages it is that of the stage which holds the fewest blocks of KV cache:
    the engine uses no more on the others. `stages` lists all of them, the first one first.

    `device_bytes` x utilization = `budget_bytes` = weights + lora + activation + non_torch +
    graphs + correction + kv_cache, which is negative if the others exceed the budget.
    `lora_bytes` are the buffers for adapters. `correction_bytes` is the measured difference between
    real starts and the calculation, negative if they took less, 0 without a correction.
    `graph_bytes` is 0 if the release keeps graphs outside the budget. `request_kv_bytes` is the KV
    cache of one request of `max_model_len`, `kv_bytes_per_token` the cost of one more token of
    context (without sliding windows and fixed states), `kv_cache_tokens` the tokens that one
    replica holds at once in requests of `max_model_len`. `needed_kv_bytes` is the smallest KV cache
    that holds the required tokens, vLLM's reserved blocks included.
    `band_bytes` is the uncertainty of `kv_cache_bytes`.
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
    lora_bytes: int = 0
    stages: tuple[StageMemory, ...] = ()

    @property
    def margin_bytes(self) -> int:
        """KV cache beyond the required tokens, negative if it is too small."""
        return self.kv_cache_bytes - self.needed_kv_bytes


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The model fits: the KV cache holds the `required_tokens`.

    `tight`: the margin beyond them is smaller than the account's uncertainty.
    """

    account: MemoryAccount
    required_tokens: int
    tight: bool = False


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """The model does not fit: `term` needs `needed_bytes` of one GPU, `available_bytes` are left.

    `outside_budget`: the memory outside vLLM's budget is too small, not the budget.
    """

    term: MemoryTerm
    needed_bytes: int
    available_bytes: int
    account: MemoryAccount
    outside_budget: bool = False

    @property
    def narrowly(self) -> bool:
        """Whether the budget falls short by less than the account's uncertainty."""
        return not self.outside_budget and -self.account.margin_bytes < self.account.band_bytes


@dataclass(frozen=True, slots=True)
class IllegalParallelism:
    """vLLM refuses this parallelism: `message` has the numbers, `rule` is a CamelCase name."""

    rule: str
    message: str


FitVerdict = MemoryFit | DoesNotFit | IllegalParallelism
