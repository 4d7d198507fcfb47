"""The weight matrices that one rank holds: how vLLM 0.32.0 shards, replicates and pads layers.

Sources: vllm/model_executor/layers/linear.py (QKVParallelLinear, ColumnParallelLinear,
RowParallelLinear), layers/vocab_parallel_embedding.py, layers/fused_moe/layer.py and the model
classes named below.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tonnage.catalog.engine import ExpertPadding
from tonnage.checkpoint.model import Experts, LatentAttention, LinearAttention, ModelShape

VOCABULARY_MULTIPLE: Final = 64
"""The vocabulary is padded to it: vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE."""


class WeightPart(StrEnum):
    """What a matrix belongs to."""

    EMBEDDINGS = "embeddings"
    LM_HEAD = "lm_head"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"
    ROUTER = "router"
    NORMS = "norms"
    VISION = "vision"


@dataclass(frozen=True, slots=True)
class Matrix:
    """`layers` x `copies` equal matrices of one rank; `name` is the linear layer's, as the lists of
    unquantised layers spell it, None for what no method quantises."""

    part: WeightPart
    name: str | None
    layers: int
    rows: int
    columns: int
    copies: int = 1

    @property
    def elements(self) -> int:
        """Weights of all of them."""
        return self.layers * self.copies * self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is split over ranks. `expert_padding` rounds experts up, None leaves them."""

    tensor: int = 1
    pipeline: int = 1
    expert_parallel: bool = False
    expert_padding: ExpertPadding | None = None

    def shard(self, size: int) -> int:
        """A rank's part of a dimension, the largest where it does not divide."""
        return -(-size // self.tensor)

    def stage(self, layers: int) -> int:
        """Layers on the fullest pipeline stage (vllm/distributed/utils.py get_pp_indices)."""
        return -(-layers // self.pipeline)


WHOLE: Final = Split()
"""One rank that holds everything: the model as it lies on disk."""


def rank_matrices(shape: ModelShape, split: Split) -> Iterator[Matrix]:
    """Every weight matrix that the fullest rank holds after loading, before quantisation."""
    yield from _embeddings(shape, split)
    yield from _attention(shape, split)
    yield from _dense_mlp(shape, split)
    if shape.experts is not None:
        yield from _experts(shape, shape.experts, split)
    yield Matrix(WeightPart.NORMS, None, split.stage(shape.layers), 2, shape.hidden_size)
    yield Matrix(WeightPart.VISION, None, 1, 1, split.shard(shape.vision_parameters))


def kv_heads_per_rank(kv_heads: int, tensor: int) -> int:
    """KV heads on each rank: shared out, or replicated when there are fewer than ranks.

    Source: vllm/model_executor/layers/linear.py QKVParallelLinear.
    """
    return max(1, kv_heads // tensor)


def _embeddings(shape: ModelShape, split: Split) -> Iterator[Matrix]:
    """Embeddings and head; with pipeline stages the first has one, the last the other."""
    padded = -(-shape.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    rows = split.shard(padded)
    yield Matrix(WeightPart.EMBEDDINGS, None, 1, rows, shape.hidden_size)
    if not shape.tie_word_embeddings and split.pipeline == 1:
        yield Matrix(WeightPart.LM_HEAD, None, 1, rows, shape.hidden_size)


def _attention(shape: ModelShape, split: Split) -> Iterator[Matrix]:
    if shape.latent_attention is not None:
        yield from _latent_attention(shape, shape.latent_attention, split)
        return
    if shape.linear_attention is not None:
        yield from _linear_attention(shape, shape.linear_attention, split)
    attending = shape.layers - shape.linear_layers
    apart = attending - shape.sliding_layers if shape.global_head_dim is not None else 0
    alike = attending - apart
    yield from _grouped_attention(shape, split, alike, shape.kv_heads, shape.head_dim)
    if shape.global_head_dim is not None and apart:
        kv_heads = shape.global_kv_heads or shape.kv_heads
        yield from _grouped_attention(shape, split, apart, kv_heads, shape.global_head_dim)


def _grouped_attention(
    shape: ModelShape, split: Split, layers: int, kv_heads: int, head_dim: int
) -> Iterator[Matrix]:
    stage, hidden = split.stage(layers), shape.hidden_size
    query = split.shard(shape.attention_heads) * head_dim
    gated = 2 * query if shape.attention_gate else query
    key = kv_heads_per_rank(kv_heads, split.tensor) * head_dim
    part = WeightPart.ATTENTION
    yield Matrix(part, "self_attn.q_proj", stage, gated, hidden)
    yield Matrix(part, "self_attn.k_proj", stage, key, hidden)
    yield Matrix(part, "self_attn.v_proj", stage, key, hidden)
    yield Matrix(part, "self_attn.o_proj", stage, hidden, query)


def _latent_attention(shape: ModelShape, latent: LatentAttention, split: Split) -> Iterator[Matrix]:
    """Down-projections are replicated, up-projections sharded by head (models/deepseek_v2.py)."""
    stage, hidden = split.stage(shape.layers), shape.hidden_size
    heads = split.shard(shape.attention_heads)
    query = heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    rank = latent.kv_lora_rank
    part = WeightPart.ATTENTION
    if latent.q_lora_rank is None:
        yield Matrix(part, "self_attn.q_proj", stage, query, hidden)
    else:
        yield Matrix(part, "self_attn.q_a_proj", stage, latent.q_lora_rank, hidden)
        yield Matrix(part, "self_attn.q_b_proj", stage, query, latent.q_lora_rank)
    down = rank + latent.qk_rope_head_dim
    up = heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    yield Matrix(part, "self_attn.kv_a_proj_with_mqa", stage, down, hidden)
    yield Matrix(part, "self_attn.kv_b_proj", stage, up, rank)
    yield Matrix(part, "self_attn.o_proj", stage, hidden, heads * latent.v_head_dim)
    yield from _indexer(shape, latent, split)


def _indexer(shape: ModelShape, latent: LatentAttention, split: Split) -> Iterator[Matrix]:
    """Replicated on every rank; its head weights are 32-bit, counted as two 16-bit ones."""
    if shape.indexer is None:
        return
    stage = split.stage(shape.indexer.layers)
    width = shape.indexer.heads * shape.indexer.head_dim
    source = latent.q_lora_rank or shape.hidden_size
    part = WeightPart.ATTENTION
    yield Matrix(part, "self_attn.indexer.wq_b", stage, width, source)
    yield Matrix(part, "self_attn.indexer.wk", stage, shape.indexer.head_dim, shape.hidden_size)
    yield Matrix(part, None, stage, 2 * shape.indexer.heads, shape.hidden_size)


def _linear_attention(shape: ModelShape, linear: LinearAttention, split: Split) -> Iterator[Matrix]:
    """Gated delta net, sharded by head (models/qwen3_next.py)."""
    stage, hidden = split.stage(shape.linear_layers), shape.hidden_size
    keys = split.shard(linear.key_heads) * linear.key_head_dim
    values = split.shard(linear.value_heads) * linear.value_head_dim
    part = WeightPart.ATTENTION
    yield Matrix(part, "linear_attn.in_proj_qkv", stage, 2 * keys + values, hidden)
    yield Matrix(part, "linear_attn.in_proj_z", stage, values, hidden)
    yield Matrix(part, "linear_attn.in_proj_ba", stage, 2 * split.shard(linear.value_heads), hidden)
    yield Matrix(part, "linear_attn.out_proj", stage, hidden, values)
    yield Matrix(part, None, stage, 2 * keys + values, linear.conv_kernel)


def _dense_mlp(shape: ModelShape, split: Split) -> Iterator[Matrix]:
    layers = shape.layers - (shape.experts.layers if shape.experts else 0)
    inner = split.shard(shape.intermediate_size)
    stage, hidden = split.stage(layers), shape.hidden_size
    yield Matrix(WeightPart.MLP, "mlp.up_proj", stage, inner, hidden)
    yield Matrix(WeightPart.MLP, "mlp.down_proj", stage, hidden, inner)
    if shape.gated_mlp:
        yield Matrix(WeightPart.MLP, "mlp.gate_proj", stage, inner, hidden)


def _experts(shape: ModelShape, experts: Experts, split: Split) -> Iterator[Matrix]:
    """Every expert is sharded, or with expert parallelism each rank has whole ones."""
    stage, hidden = split.stage(experts.layers), shape.hidden_size
    whole = split.expert_parallel
    count = split.shard(experts.count) if whole else experts.count
    inner = experts.intermediate_size if whole else split.shard(experts.intermediate_size)
    padded_hidden, padded_inner = _padded(hidden, inner, split.expert_padding)
    part, name = WeightPart.EXPERTS, "mlp.experts.0.down_proj"
    yield Matrix(part, name, stage, 2 * padded_inner, padded_hidden, count)
    yield Matrix(part, name, stage, padded_hidden, padded_inner, count)
    shared = split.shard(experts.shared_intermediate_size)
    name = "mlp.shared_experts.down_proj"
    yield Matrix(WeightPart.MLP, name, stage, 2 * shared, hidden)
    yield Matrix(WeightPart.MLP, name, stage, hidden, shared)
    yield Matrix(WeightPart.ROUTER, None, stage, experts.count, hidden)


def _padded(hidden: int, inner: int, padding: ExpertPadding | None) -> tuple[int, int]:
    if padding is None:
        return hidden, inner
    rounded_hidden = -(-hidden // padding.hidden) * padding.hidden
    return rounded_hidden, -(-inner // padding.intermediate) * padding.intermediate
