"""Data by vLLM release: defaults, overheads, and the loader's changes to weights."""

from collections.abc import Mapping
from functools import lru_cache

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT, Vendor
from tonnage.catalog.vllm.profiling import GraphCosts, Libraries, ProfileRun, Uncertainty


@dataclass(frozen=True, slots=True, config=STRICT)
class BatchTier:
    """Default batch limits on devices of at least `min_device_bytes`.

    `max_num_batched_tokens` applies to the online server, `offline_batched_tokens` to the LLM
    class. `accelerators` restricts a tier to these ids.
    """

    min_device_bytes: int
    max_num_batched_tokens: int
    max_num_seqs: int
    offline_batched_tokens: int
    accelerators: frozenset[str] | None = None
    except_accelerators: frozenset[str] = frozenset()

    def covers(self, device_bytes: int, accelerator: str) -> bool:
        """Whether this tier applies to devices of that size and kind."""
        return (
            device_bytes >= self.min_device_bytes
            and (self.accelerators is None or accelerator in self.accelerators)
            and accelerator not in self.except_accelerators
        )


@dataclass(frozen=True, slots=True, config=STRICT)
class WholePrefill:
    """Prefill of a whole prompt in one step, up to a limit of `chunk_above` tokens per prompt.

    A batch then holds at least the longest prompt and `min_tokens`, or `min_multimodal_tokens` for
    multimodal models. These, and `never_chunking` vendors, do not chunk by default.
    Source: vllm/engine/arg_utils.py and SchedulerConfig of 0.6 and 0.7.
    """

    chunk_above: int
    min_tokens: int
    min_multimodal_tokens: int
    never_chunking: frozenset[Vendor] = frozenset()


@dataclass(frozen=True, slots=True, config=STRICT)
class WeightEncoding:
    """The encoding of a linear layer's weights: `weight_bits` each, and the scales' layout.

    `block` (rows, columns) or `group_size` (weights along the input) share one scale of
    `scale_bits`; with neither, one scale serves an output channel.
    """

    weight_bits: int
    block: tuple[int, int] | None = None
    group_size: int | None = None
    scale_bits: int = 32


@dataclass(frozen=True, slots=True, config=STRICT)
class DequantizedFormat:
    """A weight format that vLLM expands to 16 bits on these architectures."""

    weight_format: str
    archs: tuple[str, ...]


@dataclass(frozen=True, slots=True, config=STRICT)
class RowPadding:
    """Bytes appended to a weight row whose size is a multiple of `every` bytes."""

    bytes: int
    every: int


@dataclass(frozen=True, slots=True, config=STRICT)
class EngineRelease:
    """One vLLM release; engines.yaml explains the fields and names their sources.

    `note` is set for a version that is not in the catalogue: it names the release whose data apply.
    """

    version: str
    gpu_memory_utilization: float
    batch_tiers: tuple[BatchTier, ...]
    batches_in_flight: int
    tensor_parallel_sizes: tuple[int, ...]
    online_quantization: Mapping[str, WeightEncoding]
    dequantized_at_load: tuple[DequantizedFormat, ...]
    row_padding: Mapping[Vendor, RowPadding]
    profile_run: ProfileRun
    non_torch_bytes: Mapping[Vendor, Mapping[int, int]]
    graphs: GraphCosts
    libraries: Libraries
    uncertainty: Uncertainty
    charges_context: bool = False
    multiplies_yarn: bool = False
    shortens_longrope: bool = False
    whole_prefill: WholePrefill | None = None
    no_pipeline: frozenset[str] = frozenset()
    note: str | None = None

    def batch_tier(self, device_bytes: int, accelerator: str) -> BatchTier:
        """The default batch limits on a device of that size.

        Source: vllm/engine/arg_utils.py get_batch_defaults.
        """
        return next(tier for tier in self.batch_tiers if tier.covers(device_bytes, accelerator))


@lru_cache(maxsize=1024)
def parse_version(version: str) -> tuple[int, ...]:
    """The numbers of a release, for comparison: `v0.27.1rc1` is (0, 27, 1).

    Raises ValueError if it does not start with a number or has more than 64 characters.
    """
    if len(version) > 64:
        raise ValueError(f"vLLM version {version[:64]!r}...: expected at most 64 characters")
    numbers: list[int] = []
    for piece in version.removeprefix("v").split("."):
        digits = piece[: len(piece) - len(piece.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != piece:
            break
    if not numbers:
        raise ValueError(f"vLLM version {version!r}: expected numbers such as v0.32.0")
    return tuple(numbers)
