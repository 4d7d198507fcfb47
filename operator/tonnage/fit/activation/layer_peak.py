"""Elements per token that one decoder layer keeps alive in the profile run.

A compiled piece of a model reaches from one attention to the next (vllm/compilation/backends.py):
the residual, attention's output and its projection stay alive during the feed-forward block.
"""

from functools import lru_cache

from tonnage.checkpoint.feed_forward_kinds import (
    DraftProjection,
    LayerEmbedding,
    ResidualStreams,
)
from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.checkpoint.model import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Mixer,
    Mlp,
    ModelShape,
)
from tonnage.fit.kv_cache.states import state_mixer_input, state_mixer_output
from tonnage.fit.weights.attention import kv_heads_per_rank
from tonnage.fit.weights.matrix import Sharding


@lru_cache(maxsize=1024)
def layer_width(shape: ModelShape, sharding: Sharding) -> int:
    """The most elements per token in any layer, without the experts' workspace.

    Two hidden states, the mixer's output, and the larger of the next mixer's input and the inner
    states of the MLP.
    """
    widths = [0]
    for layer in shape.layer_kinds:
        mixer_input = max((_mixer_input(mixer, sharding) for mixer in layer.mixers), default=0)
        mixer_output = max((_mixer_output(mixer, sharding) for mixer in layer.mixers), default=0)
        inner_width = max(
            (_inner_width(block, sharding) for block in layer.feed_forwards), default=0
        )
        widths.append(mixer_output + max(mixer_input, inner_width))
    return 2 * shape.hidden_size + max(widths)


@lru_cache(maxsize=1024)
def expert_width(shape: ModelShape, sharding: Sharding) -> int:
    """Elements per token of the experts' two buffers: one copy for each expert it is routed to.

    Source: vllm/model_executor/layers/fused_moe/fused_moe.py TritonExperts.workspace_shapes; its
    forerunner fused_experts_impl has the same two caches.
    """
    experts = shape.experts
    if experts is None:
        return 0
    inner = experts.intermediate_size
    if not sharding.expert_parallel:
        inner = -(-inner // sharding.expert_ranks)
    first, second = max(inner, shape.hidden_size), max(2 * inner, shape.hidden_size)
    return experts.per_token * (first + second)


def _inner_width(block: FeedForward, sharding: Sharding) -> int:
    """Gate, up and their product; shared experts only, since the others have buffers."""
    match block:
        case Mlp():
            return (3 if block.gated else 2) * sharding.shard(block.intermediate_size)
        case Experts():
            return 3 * sharding.shard(block.shared_intermediate_size)
        case LayerEmbedding():
            return 2 * block.width
        case ResidualStreams():
            return block.rank
        case DraftProjection():
            return 0


def _mixer_input(mixer: Mixer, sharding: Sharding) -> int:
    """Elements that a mixer's projections produce."""
    match mixer:
        case Attention():
            heads = sharding.shard(mixer.heads) * (2 if mixer.gated else 1)
            kv_heads = kv_heads_per_rank(mixer.kv_heads, sharding.tensor) if mixer.stores_kv else 0
            return heads * mixer.head_dim + kv_heads * (mixer.head_dim + mixer.value_head_dim)
        case LatentAttention():
            query = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim + (mixer.q_lora_rank or 0)
            return sharding.shard(mixer.heads) * query + latent
        case CompressedAttention():
            down = mixer.query_rank + mixer.head_dim
            return sharding.shard(mixer.heads) * mixer.head_dim + down
        case _:
            return state_mixer_input(mixer, sharding)


def _mixer_output(mixer: Mixer, sharding: Sharding) -> int:
    match mixer:
        case Attention():
            return sharding.shard(mixer.heads) * mixer.value_head_dim
        case LatentAttention():
            return sharding.shard(mixer.heads) * mixer.v_head_dim
        case CompressedAttention():
            return sharding.shard(mixer.heads) * mixer.head_dim
        case _:
            return state_mixer_output(mixer, sharding)
