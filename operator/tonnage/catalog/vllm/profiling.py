"""Memory that a vLLM release measures at start besides weights: the terms of engines.yaml."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT, Vendor


class ProfiledSampler(StrEnum):
    """How the sampler of the profile run picks tokens; decides which copies of the logits exist.

    `sort` sorts every row (vllm/v1/sample/ops/topk_topp_sampler.py apply_top_k_top_p, in V0
    vllm/model_executor/layers/sampler.py), `filter` masks rows without sorting (FlashInfer or the
    Triton kernel), `gumbel` draws from the logits as they are (model runner V2 without top-k and
    top-p: vllm/v1/worker/gpu/model_runner.py _dummy_sampler_run), `gumbel_copy` from a copy in 32
    bits (V2 up to 0.27: vllm/v1/worker/gpu/sample/sampler.py apply_sampling_params).
    """

    SORT = "sort"
    FILTER = "filter"
    GUMBEL = "gumbel"
    GUMBEL_COPY = "gumbel_copy"


class PaddedTo(StrEnum):
    """The length that vLLM pads an encoder's outputs to: a step's budget or the largest item."""

    BUDGET = "budget"
    ITEM = "item"


@dataclass(frozen=True, slots=True, config=STRICT)
class CaptureSizes:
    """Batch sizes that vLLM captures graphs for: 1, 2, 4 and multiples of 8 up to `largest`.

    `largest_by_arch` replaces it on some architectures, `per_sequence` limits it to that many times
    max_num_seqs; `largest_by_class` replaces both for some model classes. From `coarse_from` on the
    sizes are multiples of 16 only. Source: vllm/config/vllm.py _set_cudagraph_sizes.
    """

    largest: int
    per_sequence: int | None = None
    coarse_from: int | None = None
    largest_by_arch: Mapping[str, int] = field(default_factory=dict)
    largest_by_class: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, config=STRICT)
class RunnerV2:
    """Models that run on model runner V2 by default (vllm/config/vllm.py use_v2_model_runner).

    Those of `architectures`, with `dense` also all others without experts and linear attention,
    with `every` all. Without `quantized` no model with a quantization does.
    """

    architectures: frozenset[str] = frozenset()
    dense: bool = False
    every: bool = False
    quantized: bool = True


@dataclass(frozen=True, slots=True, config=STRICT)
class GraphCosts:
    """Graphs: their batch sizes, the bytes of one, and the vendors whose budget includes them.

    A graph of one size takes `size_bytes`, plus `piece_bytes` (by tensor-parallel size) for every
    piece: V1 cuts a graph at each attention layer. Model runner V2 takes `v2_piece_bytes` more for
    each, all outside the budget unless `v2_in_budget`. The budget is charged vLLM's estimate of the
    graphs, which is `charged_share` of what they take.
    """

    capture_sizes: CaptureSizes
    size_bytes: Mapping[Vendor, int]
    piece_bytes: Mapping[Vendor, Mapping[int, int]]
    in_budget_of: frozenset[Vendor] = frozenset()
    v2_piece_bytes: int = 0
    v2_in_budget: bool = False
    charged_share: float = 1.0


@dataclass(frozen=True, slots=True, config=STRICT)
class ProfileRun:
    """The profile run: its sampler, and memory that outlives a layer's forward pass.

    With `keeps_expert_workspace` the experts' workspace stays until the end of the run, else each
    layer frees it; `expert_chunk_tokens` is the most tokens that experts process at a time.
    `pads_encoder_outputs`: vLLM copies the encoder's outputs into longer buffers. Model runner V2
    profiles `v2_sampler`, and with `charges_v2_counts` its token counters count.
    """

    sampler: Mapping[Vendor, ProfiledSampler]
    runner_v2: RunnerV2 = RunnerV2()
    v2_sampler: ProfiledSampler = ProfiledSampler.GUMBEL
    charges_v2_counts: bool = False
    keeps_expert_workspace: bool = False
    expert_chunk_tokens: int | None = None
    pads_encoder_outputs: PaddedTo | None = None


@dataclass(frozen=True, slots=True, config=STRICT)
class Libraries:
    """Memory of libraries, independent of the model.

    `blas_bytes` is torch's workspace for matrix products by architecture (`default` for others),
    `sampler_rows` the rows of the filtering sampler's buffer, `context_bytes` the driver's memory
    for a process before vLLM starts to measure.
    """

    blas_bytes: Mapping[str, int]
    sampler_rows: int
    context_bytes: Mapping[Vendor, int]


@dataclass(frozen=True, slots=True, config=STRICT)
class Uncertainty:
    """The 90th percentile of each term's measured error."""

    weights_share: float
    activation_share: float
    activation_bytes: int
    encoder_share: float
    non_torch_bytes: Mapping[Vendor, int]
    graph_share: float
