"""What one token asks of the hardware: operations, and bytes that are read for it."""

from dataclasses import dataclass
from functools import lru_cache

from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.checkpoint.model import (
    Attention,
    LatentAttention,
    Mixer,
    ModelShape,
    Quantization,
    StateMixer,
)
from tonnage.fit.matrix import WeightPart
from tonnage.fit.mixer_states import mixer_states
from tonnage.fit.model import MemoryAccount
from tonnage.fit.precision import COMPUTE_BYTES
from tonnage.fit.tensors import WHOLE
from tonnage.fit.weights import count_parameters


@dataclass(frozen=True, slots=True)
class TokenWork:
    """A model's work over all GPUs of a replica.

    `active_parameters` take part in one token: attention, the MLP or the experts it is sent to,
    and the output layer. `embedding_bytes` are not read in a step, `expert_bytes` only as far as
    some token is sent there; `routed` is the share of the experts that one token is sent to.
    `state_bytes` is what all layers keep of one sequence in states of fixed size.
    """

    shape: ModelShape
    active_parameters: float
    embedding_bytes: float
    expert_bytes: float
    routed: float
    state_bytes: int

    def operations(self, tokens: float, context_tokens: float) -> float:
        """Operations for so many tokens, each attending to a context of that length on average."""
        attention = sum(
            4 * count * mixer.heads * _head_dim(mixer) * _reach(mixer, context_tokens)
            for mixer, count in self.shape.mixer_counts.items()
            if isinstance(mixer, Attention | LatentAttention | CompressedAttention)
        )
        return tokens * (2 * self.active_parameters + attention)

    def weight_bytes(self, account: MemoryAccount, gpus: int, tokens: float) -> float:
        """Weights that one of the replica's GPUs reads in a step of so many tokens.

        The router's choice is taken as even: (1 - routed) ** tokens of the experts stay idle.
        """
        idle: float = (1 - self.routed) ** tokens
        unread = (self.embedding_bytes + self.expert_bytes * idle) / gpus
        return max(account.weights_bytes - unread, 0.0)

    def kv_bytes(self, account: MemoryAccount, requests: float, context_tokens: float) -> float:
        """KV cache that one GPU reads in a step that advances so many requests."""
        full = sum(
            count * _cached_width(mixer) * _kept_share(mixer)
            for mixer, count in self.shape.mixer_counts.items()
        )
        read = sum(
            count * _cached_width(mixer) * _reach(mixer, context_tokens)
            for mixer, count in self.shape.mixer_counts.items()
        )
        return requests * account.kv_bytes_per_token * read / full if full else 0.0

    def state_bytes_moved(self, gpus: int, requests: float) -> float:
        """States that one of the replica's GPUs reads and writes back in such a step."""
        return 2 * requests * self.state_bytes / gpus


@lru_cache(maxsize=256)
def token_work(shape: ModelShape, loaded: Quantization | None) -> TokenWork:
    """The work of a model whose weights lie in memory as `loaded` (None: 16 bits)."""
    counted = count_parameters(shape)
    experts = counted.get(WeightPart.EXPERTS, 0)
    embedding = counted.get(WeightPart.EMBEDDINGS, 0)
    head = embedding if shape.tie_word_embeddings else counted.get(WeightPart.LM_HEAD, 0)
    routed = shape.experts.per_token / shape.experts.count if shape.experts else 1.0
    always = (WeightPart.ATTENTION, WeightPart.MLP, WeightPart.ROUTER)
    return TokenWork(
        shape=shape,
        active_parameters=sum(counted.get(part, 0) for part in always) + head + experts * routed,
        embedding_bytes=0 if shape.tie_word_embeddings else embedding * 2,
        expert_bytes=experts * (loaded.weight_bits if loaded else 16) / 8,
        routed=routed,
        state_bytes=_state_bytes(shape),
    )


def _state_bytes(shape: ModelShape) -> int:
    """States of one sequence in all layers, whole."""
    return sum(
        count * tensor.size_bytes
        for mixer, count in shape.mixer_counts.items()
        if isinstance(mixer, StateMixer)
        for tensor in mixer_states(mixer, WHOLE, COMPUTE_BYTES)
    )


def _window(mixer: Mixer) -> int | None:
    return mixer.window if isinstance(mixer, Attention) else None


def _reach(mixer: Mixer, context_tokens: float) -> float:
    """Tokens of the context that a layer looks at, compressed ones counted once."""
    if isinstance(mixer, CompressedAttention):
        compressed = context_tokens / mixer.compress_ratio if mixer.compress_ratio > 1 else 0.0
        chosen = min(compressed, mixer.index_top_k) if mixer.indexer_heads else compressed
        return min(context_tokens, mixer.window) + chosen
    window = _window(mixer)
    return context_tokens if window is None else min(context_tokens, window)


def _kept_share(mixer: Mixer) -> float:
    """Cache entries that one more token of a long context adds in a layer."""
    if isinstance(mixer, CompressedAttention):
        return 1 / mixer.compress_ratio if mixer.compress_ratio > 1 else 0.0
    return 1.0 if _window(mixer) is None else 0.0


def _head_dim(mixer: Attention | LatentAttention | CompressedAttention) -> int:
    if isinstance(mixer, Attention | CompressedAttention):
        return mixer.head_dim
    return mixer.qk_nope_head_dim + mixer.qk_rope_head_dim


def _cached_width(mixer: Mixer) -> int:
    """Elements that a token has in the layer's cache, 0 where the layer keeps a state instead."""
    match mixer:
        case Attention():
            return mixer.kv_heads * (mixer.head_dim + mixer.value_head_dim)
        case LatentAttention():
            return mixer.kv_lora_rank + mixer.qk_rope_head_dim
        case CompressedAttention():
            return mixer.head_dim
        case _:  # a state of fixed size stands in its place
            return 0
