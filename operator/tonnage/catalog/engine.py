"""What depends on the vLLM release: defaults, overheads, and what the loader does to weights."""

from collections.abc import Mapping

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT, Vendor


@dataclass(frozen=True, slots=True, config=STRICT)
class BatchTier:
    """Default batch limits of the online server on devices of at least `min_device_bytes`."""

    min_device_bytes: int
    max_num_batched_tokens: int
    max_num_seqs: int
    except_accelerators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, config=STRICT)
class WeightEncoding:
    """How a linear layer's weights are stored: `weight_bits` each, and the scales' layout.

    `block` (rows, columns) or `group_size` (weights along the input) share one scale of
    `scale_bits`; with neither, one scale serves an output channel.
    """

    weight_bits: int
    block: tuple[int, int] | None = None
    group_size: int | None = None
    scale_bits: int = 32


@dataclass(frozen=True, slots=True, config=STRICT)
class DequantizedFormat:
    """A weight format that these architectures hold as 16 bits."""

    weight_format: str
    archs: tuple[str, ...]


@dataclass(frozen=True, slots=True, config=STRICT)
class ExpertPadding:
    """Multiples that the two sizes of an expert in MXFP4 are rounded up to."""

    hidden: int
    intermediate: int


@dataclass(frozen=True, slots=True, config=STRICT)
class RowPadding:
    """Bytes appended to a weight row whose size is a multiple of `every` bytes."""

    bytes: int
    every: int


@dataclass(frozen=True, slots=True, config=STRICT)
class Overheads:
    """Measured memory beside weights and KV cache; the keys of the tables are TP degrees."""

    sampler_peak_factor: float
    forward_hidden_factor: int
    forward_mlp_factor: int
    activation_floor_bytes: int
    multimodal_activation_bytes: int
    non_torch_bytes: Mapping[Vendor, Mapping[int, int]]
    graph_bytes: Mapping[Vendor, Mapping[int, int]]


@dataclass(frozen=True, slots=True, config=STRICT)
class EngineRelease:
    """One vLLM release. `note` is set when a version was asked for that is not in the catalogue:
    it says which release it is taken to behave like."""

    version: str
    gpu_memory_utilization: float
    batch_tiers: tuple[BatchTier, ...]
    batches_in_flight: int
    graphs_in_budget: bool
    refines_fp8_moe_blocks: bool
    min_refined_fp8_block: int
    padded_group_methods: frozenset[str]
    tensor_parallel_sizes: tuple[int, ...]
    online_quantization: Mapping[str, WeightEncoding]
    dequantized_at_load: tuple[DequantizedFormat, ...]
    expert_padding: Mapping[Vendor, ExpertPadding]
    row_padding: Mapping[Vendor, RowPadding]
    overheads: Overheads
    no_pipeline: frozenset[str] = frozenset()
    note: str | None = None

    def batch_tier(self, device_bytes: int, accelerator: str) -> BatchTier:
        """The default batch limits on a device of that size.

        Source: vllm/engine/arg_utils.py get_batch_defaults.
        """
        return next(
            tier
            for tier in self.batch_tiers
            if device_bytes >= tier.min_device_bytes and accelerator not in tier.except_accelerators
        )


def parse_version(version: str) -> tuple[int, ...]:
    """The numbers of a release, for comparison: `v0.27.1rc1` is (0, 27, 1).

    Raises ValueError when it does not start with a number or is longer than any version.
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
