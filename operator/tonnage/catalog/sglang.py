"""SGLang's tables and constants: sglang.yaml, which explains each field and names its source."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache

from tonnage.catalog.data_files import Entry, PositiveInt, read_data_file


class SizeDefaults(Entry):
    """Defaults for GPUs with less than `below_mib` of memory, None for all larger ones."""

    below_mib: PositiveInt | None
    chunked_prefill: PositiveInt
    decode_batch: PositiveInt
    decode_batch_tp4: PositiveInt


class Reserve(Entry):
    """What mem_fraction_static leaves free."""

    constant_mib: PositiveInt
    mib_per_token: float
    least_tokens: PositiveInt
    mib_per_gpu: PositiveInt
    mib_per_decode_request: PositiveInt
    mib_per_prefill_graph: PositiveInt
    latent_prefill_mib: PositiveInt
    least_mib: PositiveInt
    least_above_mib: PositiveInt


class Aiter(Entry):
    """What aiter attention takes away from mem_fraction_static, and where it is used."""

    fraction: float
    above_tokens: PositiveInt
    latent_heads: frozenset[int]


class WindowPools(Entry):
    """Model classes with a pool for windows, and its tokens as a share of the other pool's."""

    share: float
    classes: frozenset[str]


class PageTokens(Entry):
    """Tokens of a page by architecture, for each kind of attention; 1 for others."""

    attention: Mapping[str, PositiveInt]
    latent: Mapping[str, PositiveInt]
    sparse: Mapping[str, PositiveInt]


class Pipeline(Entry):
    """Model classes whose pipeline stages are calculated, by the stages with an output head, and
    arguments and variables that exclude stages, with the reason."""

    head_on_last: frozenset[str]
    head_on_all: frozenset[str]
    excludes: Mapping[str, str]


class Requests(Entry):
    """How many requests SGLang runs at a time."""

    per_context: PositiveInt
    least: PositiveInt
    most: PositiveInt


class Quantizations(Entry):
    """Values of --quantization whose weights are calculated, besides a checkpoint's own method:
    other names of it, and methods that quantize weights in 16 bits."""

    other_names: Mapping[str, frozenset[str]]
    online: frozenset[str]


class SGLangMemory(Entry):
    """sglang.yaml."""

    compiled: date
    version: str
    sizes: tuple[SizeDefaults, ...]
    reserve: Reserve
    prefill_graph_tokens: tuple[tuple[int, int | None, int], ...]
    latent_prefill_graph_tokens: PositiveInt
    aiter: Aiter
    window_pools: WindowPools
    page_tokens: PageTokens
    sparse_fp8: frozenset[str]
    sparse_packed: frozenset[str]
    cache_bytes: Mapping[str, PositiveInt]
    requests: Requests
    pipeline: Pipeline
    quantizations: Quantizations
    architectures: frozenset[str]

    def defaults(self, memory_mib: int) -> SizeDefaults:
        """The defaults for a GPU with this memory, as its driver reports it."""
        return next(
            size for size in self.sizes if size.below_mib is None or memory_mib < size.below_mib
        )

    def count_prefill_graphs(self, largest: int) -> int:
        """Prefill graphs of at most `largest` tokens."""
        return sum(
            len(range(first, min(largest, last or largest) + 1, step))
            for first, last, step in self.prefill_graph_tokens
        )


@lru_cache(maxsize=1)
def load_sglang_memory() -> SGLangMemory:
    """Loads the file once. Raises pydantic.ValidationError for an invalid file."""
    return SGLangMemory.model_validate(read_data_file("sglang.yaml"))
