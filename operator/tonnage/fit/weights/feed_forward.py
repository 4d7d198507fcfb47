"""The weight matrices of MLPs and experts on one rank."""

from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.checkpoint.feed_forward_kinds import (
    DraftProjection,
    LayerEmbedding,
    ResidualStreams,
)
from tonnage.checkpoint.model import Experts, FeedForward, Mlp
from tonnage.checkpoint.quantization.module_names import EXPERTS
from tonnage.fit.weights.matrix import FLOAT32_BYTES, Matrix, Sharding, WeightPart


def feed_forward_matrices(block: FeedForward, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """The matrices of one block in a model of width `hidden`."""
    match block:
        case Mlp():
            return _mlp(block, hidden, sharding)
        case Experts():
            return _experts(block, hidden, sharding)
        case LayerEmbedding():
            return _layer_embedding(block, hidden, sharding)
        case ResidualStreams():
            return _residual_streams(block, hidden, sharding)
        case DraftProjection():
            return _mtp_projection(block, hidden, sharding)


def _mlp(block: Mlp, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    part, inner = WeightPart.MLP, block.intermediate_size
    inner = inner if block.whole else sharding.shard(inner)
    biased = 1 if block.bias else 0
    if block.gated:
        yield Matrix(part, "mlp.gate_proj", inner, hidden, biases=biased * inner)
    yield Matrix(part, "mlp.up_proj", inner, hidden, biases=biased * inner)
    bias = biased * hidden
    yield Matrix(part, "mlp.down_proj", hidden, inner, row_parallel=True, biases=bias)


def _experts(block: Experts, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """Tensor parallelism shards every expert; expert parallelism gives each rank whole experts.

    Source: vllm/model_executor/layers/fused_moe/layer.py.
    """
    sizes = expert_sizes(block, hidden, sharding)
    stacked = 2 if block.gated else 1
    up = stacked * sizes.inner
    part, name = WeightPart.EXPERTS, EXPERTS
    biased = 1 if block.bias else 0
    yield Matrix(part, name, up, sizes.width, sizes.count, biases=biased * up, stacked=stacked)
    yield Matrix(
        part,
        name,
        sizes.width,
        sizes.inner,
        sizes.count,
        row_parallel=not sharding.expert_parallel,
        biases=biased * sizes.width,
    )
    yield from _shared_experts(block, hidden, sharding)
    yield from _latent_projections(block, hidden)
    router_rows = block.count + block.idle_count
    yield Matrix(WeightPart.ROUTER, None, router_rows, hidden, element_bytes=block.router_bytes)
    if block.router_bias:
        yield Matrix(WeightPart.ROUTER, None, router_rows, 1, element_bytes=FLOAT32_BYTES)


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """The experts of one rank: how many, and the padded sizes of each: its inputs and outputs are
    `width` wide, between them it is `inner` wide."""

    count: int
    width: int
    inner: int


def expert_sizes(block: Experts, hidden: int, sharding: Sharding) -> ExpertSizes:
    """What a rank holds of the experts in a model of width `hidden`."""
    whole = sharding.expert_parallel
    count = -(-block.count // sharding.expert_ranks) if whole else block.count
    inner = block.intermediate_size if whole else _expert_shard(block, sharding)
    width, inner = _padded(block, hidden, inner, sharding)
    return ExpertSizes(count, width, inner)


def _expert_shard(block: Experts, sharding: Sharding) -> int:
    """Width of a rank's part of an expert; Kimi's kernels have a minimum (kimi_k3 KimiMoE)."""
    if sharding.expert_ranks == 1:
        return block.intermediate_size
    return max(-(-block.intermediate_size // sharding.expert_ranks), block.narrowest_shard)


def _shared_experts(block: Experts, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    if not block.shared_intermediate_size:
        return
    inner, name = sharding.shard(block.shared_intermediate_size), "mlp.shared_experts.down_proj"
    yield Matrix(WeightPart.MLP, name, 2 * inner if block.gated else inner, hidden)
    yield Matrix(WeightPart.MLP, name, hidden, inner, row_parallel=True)
    if block.shared_gate:
        yield Matrix(WeightPart.ROUTER, None, 1, hidden)


def _latent_projections(block: Experts, hidden: int) -> Iterator[Matrix]:
    """Projections to and from the experts' latent space (models/nemotron_h.py NemotronHMoE)."""
    if block.latent_size is not None:
        yield Matrix(WeightPart.MLP, "mlp.fc1_latent_proj", block.latent_size, hidden)
        yield Matrix(WeightPart.MLP, "mlp.fc2_latent_proj", hidden, block.latent_size)


def _layer_embedding(block: LayerEmbedding, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """One layer's share of the embedding and the projection that all layers share.

    Sources: vllm/model_executor/models/gemma4.py, gemma3n.py.
    """
    yield Matrix(WeightPart.EMBEDDINGS, None, sharding.shard(block.vocab_size), block.width)
    yield Matrix(WeightPart.MLP, None, sharding.shard(block.width), hidden)
    yield Matrix(WeightPart.MLP, None, block.width, hidden)
    yield Matrix(WeightPart.MLP, None, hidden, block.width)
    yield Matrix(WeightPart.NORMS, None, hidden, 1)


def _residual_streams(block: ResidualStreams, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """Source: vllm/model_executor/models/gemma3n.py Gemma3nLaurelBlock, Gemma3nAltUp."""
    yield Matrix(WeightPart.MLP, None, sharding.shard(block.rank), hidden)
    yield Matrix(WeightPart.MLP, None, hidden, sharding.shard(block.rank), row_parallel=True)
    yield Matrix(WeightPart.MLP, None, block.count, hidden + block.count + block.count**2)
    yield Matrix(WeightPart.NORMS, None, 2 * hidden, 1)
    yield Matrix(WeightPart.NORMS, None, hidden, 1, element_bytes=FLOAT32_BYTES)


def _mtp_projection(block: DraftProjection, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """vLLM shards and quantises its own linear layers, but not those of torch (`eh_proj`)."""
    if block.sharded:
        yield Matrix(WeightPart.MLP, "mtp.fc", sharding.shard(hidden), 2 * hidden)
    else:
        yield Matrix(WeightPart.MLP, None, hidden, 2 * hidden)


def _padded(block: Experts, hidden: int, inner: int, sharding: Sharding) -> tuple[int, int]:
    width, padding = block.latent_size or hidden, sharding.expert_padding
    if padding is None or (padding.silu_only and not block.silu):
        return width, inner
    rounded = -(-width // padding.hidden) * padding.hidden
    return rounded, -(-inner // padding.intermediate) * padding.intermediate
