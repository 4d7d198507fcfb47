"""SGLang's memory against its own configurator, which tests/support/sglang_memory runs.

Each layout has the free memory before loading and the weights as given, so that nothing but
SGLang's choices is compared: the fraction of the memory, the pools and the requests.
"""

from collections.abc import Sequence
from functools import cache

from accuracy.measures import Error, relative_error
from accuracy.records import Record, models, read_lines
from tonnage.catalog.load import load_catalog
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.model import Device, PoolSizes, Replica, ServerOptions, StaticFraction
from tonnage.fit.sglang.pools import size_pools


class SGLangLayout(Record):
    """A layout, and what SGLang makes of it; `given_...` are arguments of the user."""

    id: str
    model: str
    accelerator: str
    driver_mib: int
    tensor_parallel_size: int
    kv_cache_dtype: str
    free_bytes: int
    weights_bytes: int
    given_fraction: float | None = None
    given_chunk: int | None = None
    given_requests: int | None = None
    given_context: int | None = None
    mem_fraction_static: float
    page_size: int
    chunked_prefill_size: int
    context_length: int
    kv_cache_tokens: int
    window_tokens: int | None
    max_running_requests: int

    def calculate(self) -> tuple[StaticFraction, PoolSizes]:
        """The same by Tonnage's calculation."""
        memory = load_sglang_memory()
        options = ServerOptions(
            context_length=self.context_length,
            tensor_parallel_size=self.tensor_parallel_size,
            mem_fraction_static=self.given_fraction,
            chunked_prefill_size=self.given_chunk,
            max_running_requests=self.given_requests,
            kv_cache_dtype=self.kv_cache_dtype,
        )
        arch = load_catalog().accelerator(self.accelerator).arch
        shape = parse_config(models()[self.model].config)
        replica = Replica(shape, options, Device(arch, self.driver_mib))
        static = static_fraction(replica, memory)
        pool_bytes = int(self.free_bytes * static.fraction) - self.weights_bytes
        return static, size_pools(replica, pool_bytes, memory)


@cache
def sglang_layouts() -> tuple[SGLangLayout, ...]:
    """All layouts."""
    return tuple(SGLangLayout.model_validate(line) for line in read_lines("sglang.jsonl"))


def token_errors() -> Sequence[Error]:
    """Relative errors of the tokens in the KV cache."""
    return [
        Error(layout.id, relative_error(layout.calculate()[1].tokens, layout.kv_cache_tokens))
        for layout in sglang_layouts()
    ]


def fraction_errors() -> Sequence[Error]:
    """Differences of mem_fraction_static."""
    return [
        Error(layout.id, abs(layout.calculate()[0].fraction - layout.mem_fraction_static))
        for layout in sglang_layouts()
    ]
