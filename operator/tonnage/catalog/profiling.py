"""What a vLLM release measures at start besides weights: the terms of engines.yaml."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT, Vendor


class ProfiledSampler(StrEnum):
    """How the sampler of the profile run picks tokens; decides which copies of the logits live.

    `sort` sorts every row (vllm/v1/sample/ops/topk_topp_sampler.py apply_top_k_top_p, in V0
    vllm/model_executor/layers/sampler.py), `filter` masks rows without sorting (FlashInfer or the
    Triton kernel), `gumbel` draws from the logits as they are (model runner V2 without top-k and
    top-p: vllm/v1/worker/gpu/model_runner.py _dummy_sampler_run).
    """

    SORT = "sort"
    FILTER = "filter"
    GUMBEL = "gumbel"


class RunnerV2(StrEnum):
    """Which models run on model runner V2 without being told to (vllm/config/vllm.py)."""

    NONE = "none"
    DENSE = "dense"
    ALL = "all"


class PaddedTo(StrEnum):
    """Tokens that an encoder's outputs are padded to: a whole step's budget or the largest item."""

    BUDGET = "budget"
    ITEM = "item"


@dataclass(frozen=True, slots=True, config=STRICT)
class CaptureSizes:
    """Batch sizes that graphs are captured for: 1, 2, 4 and multiples of 8 up to `largest`.

    `largest_by_arch` replaces it on some architectures, `per_sequence` limits it to that many times
    max_num_seqs; from `coarse_from` on the sizes are multiples of 16 only. Source:
    vllm/config/vllm.py _set_cudagraph_sizes.
    """

    largest: int
    per_sequence: int | None = None
    coarse_from: int | None = None
    largest_by_arch: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, config=STRICT)
class GraphCosts:
    """Graphs: for which sizes, what one of them costs, and of which vendors' budget they are taken.

    A graph of one size costs `size_bytes`, and `piece_bytes` by tensor-parallel degree for every
    piece that it is cut into: V1 cuts at each attention layer.
    """

    capture_sizes: CaptureSizes
    size_bytes: Mapping[Vendor, int]
    piece_bytes: Mapping[Vendor, Mapping[int, int]]
    in_budget_of: frozenset[Vendor] = frozenset()


@dataclass(frozen=True, slots=True, config=STRICT)
class ProfileRun:
    """The profile run: which sampler, and what outlives a layer's forward pass.

    With `keeps_expert_workspace` the experts' workspace stays until the end of the run, else it is
    freed with each layer; `expert_chunk_tokens` is the most tokens experts work on at a time.
    `pads_encoder_outputs`: the encoder's outputs are copied into longer ones. Model runner V2
    profiles `v2_sampler`, and with `charges_v2_counts` its counters of tokens are charged.
    """

    sampler: Mapping[Vendor, ProfiledSampler]
    runner_v2: RunnerV2 = RunnerV2.NONE
    v2_sampler: ProfiledSampler = ProfiledSampler.GUMBEL
    charges_v2_counts: bool = False
    keeps_expert_workspace: bool = False
    expert_chunk_tokens: int | None = None
    pads_encoder_outputs: PaddedTo | None = None


@dataclass(frozen=True, slots=True, config=STRICT)
class Libraries:
    """Memory that libraries take, whatever the model.

    `blas_bytes` is torch's workspace for matrix products by architecture (`default` for others),
    `sampler_rows` the rows of the buffer that the filtering sampler keeps, `context_bytes` what the
    device's driver takes of a process's memory before vLLM starts to count.
    """

    blas_bytes: Mapping[str, int]
    sampler_rows: int
    context_bytes: Mapping[Vendor, int]


@dataclass(frozen=True, slots=True, config=STRICT)
class Uncertainty:
    """How far each term was off where it was measured, nine times out of ten."""

    weights_share: float
    activation_share: float
    activation_bytes: int
    encoder_share: float
    non_torch_bytes: Mapping[Vendor, int]
    graph_share: float
