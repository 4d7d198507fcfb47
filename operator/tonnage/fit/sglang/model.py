"""Input and output of the calculation. All figures are for one GPU."""

from dataclasses import dataclass

from tonnage.checkpoint.model import ModelShape


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """SGLang's arguments that memory depends on; None means its default.

    `context_length` are the tokens of the longest request.
    """

    context_length: int
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    mem_fraction_static: float | None = None
    chunked_prefill_size: int | None = None
    max_running_requests: int | None = None
    kv_cache_dtype: str = "auto"


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: its architecture (`sm_90`, `gfx942`) and the MiB that its driver reports."""

    arch: str
    memory_mib: int

    @property
    def is_amd(self) -> bool:
        """Whether ROCm runs it."""
        return self.arch.startswith("gfx")


@dataclass(frozen=True, slots=True)
class Replica:
    """A model with its arguments on a kind of GPU."""

    shape: ModelShape
    options: ServerOptions
    device: Device


@dataclass(frozen=True, slots=True)
class StaticFraction:
    """`fraction` of the free memory is for weights and KV cache.

    The rest is for activations of `chunked_prefill` tokens and for graphs of `decode_batch`
    requests. `aiter_factor` is what aiter attention multiplied the fraction by.
    """

    fraction: float
    chunked_prefill: int
    decode_batch: int
    aiter_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """The KV cache of one replica: `tokens` for full attention, and `window_tokens` in the pool of
    sliding windows (None without one), in pages of `page_tokens` tokens.

    SGLang starts with a pool that is smaller than its context, and cuts requests off at the pool.
    A pool without tokens does not start. `max_requests` run at a time.
    """

    bytes_per_token: float
    page_tokens: int
    tokens: int
    window_tokens: int | None
    max_requests: int


class NotCalculatedError(ValueError):
    """SGLang's memory of such a model or device is not calculated; the message says why."""
