"""The weight matrices of MLPs and experts, as one rank holds them."""

from collections.abc import Iterator

from tonnage.checkpoint.feed_forward_kinds import (
    DraftProjection,
    LayerEmbedding,
    ResidualStreams,
)
from tonnage.checkpoint.model import Experts, FeedForward, Mlp
from tonnage.checkpoint.module_names import EXPERTS
from tonnage.fit.matrix import FLOAT32_BYTES, Matrix, Split, WeightPart


def feed_forward_matrices(block: FeedForward, hidden: int, split: Split) -> Iterator[Matrix]:
    """The matrices of one block in a model of width `hidden`."""
    match block:
        case Mlp():
            return _mlp(block, hidden, split)
        case Experts():
            return _experts(block, hidden, split)
        case LayerEmbedding():
            return _layer_embedding(block, hidden, split)
        case ResidualStreams():
            return _residual_streams(block, hidden, split)
        case DraftProjection():
            return _draft_projection(block, hidden, split)


def _mlp(block: Mlp, hidden: int, split: Split) -> Iterator[Matrix]:
    part, inner = WeightPart.MLP, block.intermediate_size
    inner = inner if block.whole else split.shard(inner)
    biased = 1 if block.bias else 0
    if block.gated:
        yield Matrix(part, "mlp.gate_proj", inner, hidden, biases=biased * inner)
    yield Matrix(part, "mlp.up_proj", inner, hidden, biases=biased * inner)
    bias = biased * hidden
    yield Matrix(part, "mlp.down_proj", hidden, inner, row_parallel=True, biases=bias)


def _experts(block: Experts, hidden: int, split: Split) -> Iterator[Matrix]:
    """Every expert is sharded, or with expert parallelism each rank has whole ones.

    Source: vllm/model_executor/layers/fused_moe/layer.py.
    """
    whole = split.expert_parallel
    count = -(-block.count // split.expert_ranks) if whole else block.count
    inner = block.intermediate_size if whole else _expert_shard(block, split)
    wide, long = _padded(block, hidden, inner, split)
    stacked = 2 if block.gated else 1
    up = stacked * long
    part, name = WeightPart.EXPERTS, EXPERTS
    biased = 1 if block.bias else 0
    yield Matrix(part, name, up, wide, count, biases=biased * up, stacked=stacked)
    yield Matrix(part, name, wide, long, count, row_parallel=not whole, biases=biased * wide)
    yield from _shared_experts(block, hidden, split)
    yield from _latent_projections(block, hidden)
    choices = block.count + block.idle_count
    yield Matrix(WeightPart.ROUTER, None, choices, hidden, element_bytes=block.router_bytes)
    if block.router_bias:
        yield Matrix(WeightPart.ROUTER, None, choices, 1, element_bytes=FLOAT32_BYTES)


def _expert_shard(block: Experts, split: Split) -> int:
    """Width of a rank's part of an expert; Kimi's kernels need a least one (kimi_k3 KimiMoE)."""
    if split.expert_ranks == 1:
        return block.intermediate_size
    return max(-(-block.intermediate_size // split.expert_ranks), block.narrowest_shard)


def _shared_experts(block: Experts, hidden: int, split: Split) -> Iterator[Matrix]:
    if not block.shared_intermediate_size:
        return
    inner, name = split.shard(block.shared_intermediate_size), "mlp.shared_experts.down_proj"
    yield Matrix(WeightPart.MLP, name, 2 * inner if block.gated else inner, hidden)
    yield Matrix(WeightPart.MLP, name, hidden, inner, row_parallel=True)
    if block.shared_gate:
        yield Matrix(WeightPart.ROUTER, None, 1, hidden)


def _latent_projections(block: Experts, hidden: int) -> Iterator[Matrix]:
    """Into the space that the experts work in and back (models/nemotron_h.py NemotronHMoE)."""
    if block.latent_size is not None:
        yield Matrix(WeightPart.MLP, "mlp.fc1_latent_proj", block.latent_size, hidden)
        yield Matrix(WeightPart.MLP, "mlp.fc2_latent_proj", hidden, block.latent_size)


def _layer_embedding(block: LayerEmbedding, hidden: int, split: Split) -> Iterator[Matrix]:
    """One layer's share of the embedding and the projection that all layers have in common.

    Sources: vllm/model_executor/models/gemma4.py, gemma3n.py.
    """
    yield Matrix(WeightPart.EMBEDDINGS, None, split.shard(block.vocab_size), block.width)
    yield Matrix(WeightPart.MLP, None, split.shard(block.width), hidden)
    yield Matrix(WeightPart.MLP, None, block.width, hidden)
    yield Matrix(WeightPart.MLP, None, hidden, block.width)
    yield Matrix(WeightPart.NORMS, None, hidden, 1)


def _residual_streams(block: ResidualStreams, hidden: int, split: Split) -> Iterator[Matrix]:
    """Source: vllm/model_executor/models/gemma3n.py Gemma3nLaurelBlock, Gemma3nAltUp."""
    yield Matrix(WeightPart.MLP, None, split.shard(block.rank), hidden)
    yield Matrix(WeightPart.MLP, None, hidden, split.shard(block.rank), row_parallel=True)
    yield Matrix(WeightPart.MLP, None, block.count, hidden + block.count + block.count**2)
    yield Matrix(WeightPart.NORMS, None, 2 * hidden, 1)
    yield Matrix(WeightPart.NORMS, None, hidden, 1, element_bytes=FLOAT32_BYTES)


def _draft_projection(block: DraftProjection, hidden: int, split: Split) -> Iterator[Matrix]:
    """A linear layer of vLLM's is split and quantised, one of torch's (`eh_proj`) is neither."""
    if block.sharded:
        yield Matrix(WeightPart.MLP, "mtp.fc", split.shard(hidden), 2 * hidden)
    else:
        yield Matrix(WeightPart.MLP, None, hidden, 2 * hidden)


def _padded(block: Experts, hidden: int, inner: int, split: Split) -> tuple[int, int]:
    wide, padding = block.latent_size or hidden, split.expert_padding
    if padding is None or (padding.silu_only and not block.silu):
        return wide, inner
    rounded = -(-wide // padding.hidden) * padding.hidden
    return rounded, -(-inner // padding.intermediate) * padding.intermediate
