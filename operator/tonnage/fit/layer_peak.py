"""What one decoder layer keeps alive in the profile run, in elements a token.

The compiled pieces of a model reach from one attention to the next (vllm/compilation/backends.py):
the residual, attention's output and its projection live while the layer feeds tokens forward.
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
from tonnage.fit.matrix import Split
from tonnage.fit.mixer_states import state_mixer_input, state_mixer_output
from tonnage.fit.mixer_tensors import kv_heads_per_rank


@lru_cache(maxsize=1024)
def layer_width(shape: ModelShape, split: Split) -> int:
    """The most elements a token has alive in any layer, the experts' workspace left out.

    Two hidden states, what the mixer put out, and the larger of what the next mixer takes in and
    the inner states of the MLP.
    """
    widths = [0]
    for layer in shape.layer_kinds:
        taken = max((_mixer_input(mixer, split) for mixer in layer.mixers), default=0)
        out = max((_mixer_output(mixer, split) for mixer in layer.mixers), default=0)
        inner = max((_inner_width(block, split) for block in layer.feed_forwards), default=0)
        widths.append(out + max(taken, inner))
    return 2 * shape.hidden_size + max(widths)


@lru_cache(maxsize=1024)
def expert_width(shape: ModelShape, split: Split) -> int:
    """Elements of the experts' two buffers a token: a copy for each expert that it goes to.

    Source: vllm/model_executor/layers/fused_moe/fused_moe.py TritonExperts.workspace_shapes; its
    forerunner fused_experts_impl has the same two caches.
    """
    experts = shape.experts
    if experts is None:
        return 0
    inner = experts.intermediate_size
    if not split.expert_parallel:
        inner = split.shard(inner)
    first, second = max(inner, shape.hidden_size), max(2 * inner, shape.hidden_size)
    return experts.per_token * (first + second)


def _inner_width(block: FeedForward, split: Split) -> int:
    """Gate, up and their product; of experts the shared ones only, the others have buffers."""
    match block:
        case Mlp():
            return (3 if block.gated else 2) * split.shard(block.intermediate_size)
        case Experts():
            return 3 * split.shard(block.shared_intermediate_size)
        case LayerEmbedding():
            return 2 * block.width
        case ResidualStreams():
            return block.rank
        case DraftProjection():
            return 0


def _mixer_input(mixer: Mixer, split: Split) -> int:
    """What a mixer's projections put out."""
    match mixer:
        case Attention():
            heads = split.shard(mixer.heads) * (2 if mixer.gated else 1)
            kv_heads = kv_heads_per_rank(mixer.kv_heads, split.tensor) if mixer.stores_kv else 0
            return heads * mixer.head_dim + kv_heads * (mixer.head_dim + mixer.value_head_dim)
        case LatentAttention():
            query = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim + (mixer.q_lora_rank or 0)
            return split.shard(mixer.heads) * query + latent
        case CompressedAttention():
            down = mixer.query_rank + mixer.head_dim
            return split.shard(mixer.heads) * mixer.head_dim + down
        case _:
            return state_mixer_input(mixer, split)


def _mixer_output(mixer: Mixer, split: Split) -> int:
    match mixer:
        case Attention():
            return split.shard(mixer.heads) * mixer.value_head_dim
        case LatentAttention():
            return split.shard(mixer.heads) * mixer.v_head_dim
        case CompressedAttention():
            return split.shard(mixer.heads) * mixer.head_dim
        case _:
            return state_mixer_output(mixer, split)
