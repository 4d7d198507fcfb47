"""What one token asks of the hardware: operations, and bytes that are read for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.checkpoint.model import (
    Attending,
    Attention,
    DecoderLayer,
    Experts,
    LatentAttention,
    Mixer,
    ModelShape,
    Quantization,
    SparseIndexer,
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
    and the output layer; `active_expert_parameters` of them are experts, in `expert_layers` layers.
    `embedding_bytes` are not read in a step, `expert_bytes` only as far as some token is sent
    there; `routed` is the share of the experts that one token is sent to. Sparse layers look at
    `chosen_tokens`. `state_bytes` is what all layers keep of one sequence in states of fixed size.
    """

    shape: ModelShape
    active_parameters: float
    active_expert_parameters: float
    expert_layers: int
    embedding_bytes: float
    expert_bytes: float
    routed: float
    chosen_tokens: int
    state_bytes: int

    def decode_attention(self, context_tokens: float) -> float:
        """Operations with which one new token attends to a context of that length."""
        return sum(
            2 * count * mixer.heads * _decode_width(mixer) * self._reach(mixer, context_tokens)
            for mixer, count in self._attending
        )

    def prompt_attention(self, context_tokens: float) -> float:
        """The same for a token of a prompt, to which others of its prompt come before it."""
        return sum(
            2 * count * mixer.heads * _prompt_width(mixer) * self._reach(mixer, context_tokens)
            for mixer, count in self._attending
        )

    @property
    def _attending(self) -> Iterator[tuple[Attending, int]]:
        counts = self.shape.mixer_counts.items()
        return ((mixer, count) for mixer, count in counts if isinstance(mixer, Attending))

    def weight_bytes(self, account: MemoryAccount, gpus: int, tokens: float) -> float:
        """Weights that one of the replica's GPUs reads in a step of so many tokens.

        The router's choice is taken as even: (1 - routed) ** tokens of the experts stay idle.
        """
        idle: float = (1 - self.routed) ** tokens
        unread = (self.embedding_bytes + self.expert_bytes * idle) / gpus
        return max(account.weights_bytes - unread, 0.0)

    def kv_bytes(self, account: MemoryAccount, requests: float, context_tokens: float) -> float:
        """KV cache that one GPU reads in a step that advances so many requests."""
        full = read = 0.0
        for mixer, count in self.shape.mixer_counts.items():
            width, keys = _cached_width(mixer), _indexer_width(mixer)
            full += count * (width * _kept_share(mixer) + keys)
            read += count * (width * self._reach(mixer, context_tokens) + keys * context_tokens)
        return requests * account.kv_bytes_per_token * read / full if full else 0.0

    def state_bytes_moved(self, gpus: int, requests: float) -> float:
        """States that one of the replica's GPUs reads and writes back in such a step."""
        return 2 * requests * self.state_bytes / gpus

    def _reach(self, mixer: Mixer, context_tokens: float) -> float:
        """Tokens of the context that a layer looks at, compressed ones counted once."""
        match mixer:
            case CompressedAttention():
                return _compressed_reach(mixer, context_tokens)
            case LatentAttention(sparse=True) | Attention(indexer=SparseIndexer()):
                return min(context_tokens, self.chosen_tokens)
            case Attention(window=int(window)):
                return min(context_tokens, window)
        return context_tokens


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
        active_expert_parameters=experts * routed,
        expert_layers=sum(count for layer, count in shape.layer_counts.items() if _routes(layer)),
        embedding_bytes=0 if shape.tie_word_embeddings else embedding * 2,
        expert_bytes=experts * (loaded.weight_bits if loaded else 16) / 8,
        routed=routed,
        chosen_tokens=_chosen_tokens(shape),
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


def _chosen_tokens(shape: ModelShape) -> int:
    """Tokens that indexers choose, 0 without any."""
    indexers = (getattr(mixer, "indexer", None) for mixer in shape.mixer_counts)
    return max((each.top_k * each.pool for each in indexers if each is not None), default=0)


def _compressed_reach(mixer: CompressedAttention, context_tokens: float) -> float:
    compressed = context_tokens / mixer.compress_ratio if mixer.compress_ratio > 1 else 0.0
    chosen = min(compressed, mixer.index_top_k) if mixer.indexer_heads else compressed
    return min(context_tokens, mixer.window) + chosen


def _kept_share(mixer: Mixer) -> float:
    """Cache entries that one more token of a long context adds in a layer."""
    if isinstance(mixer, CompressedAttention):
        return 1 / mixer.compress_ratio if mixer.compress_ratio > 1 else 0.0
    return 0.0 if isinstance(mixer, Attention) and mixer.window is not None else 1.0


def _routes(layer: DecoderLayer) -> bool:
    return any(isinstance(block, Experts) for block in layer.feed_forwards)


def _prompt_width(mixer: Attending) -> int:
    """Elements of a head's keys and values that a query is multiplied with."""
    if isinstance(mixer, LatentAttention):
        return mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
    if isinstance(mixer, CompressedAttention):
        return 2 * mixer.head_dim
    return mixer.head_dim + mixer.value_head_dim


def _decode_width(mixer: Attending) -> int:
    """The same while decoding: a latent is not expanded, every head multiplies with all of it."""
    if isinstance(mixer, LatentAttention):
        return 2 * mixer.kv_lora_rank + mixer.qk_rope_head_dim
    return _prompt_width(mixer)


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


def _indexer_width(mixer: Mixer) -> float:
    """Elements of a token's key by which an indexer chooses; the indexer looks at all of them.

    A latent's keys are kept in 8 bits, half an element of the cache.
    """
    match mixer:
        case LatentAttention(indexer=SparseIndexer() as indexer):
            return indexer.head_dim / indexer.pool / 2
        case Attention(indexer=SparseIndexer() as indexer):
            return indexer.head_dim / indexer.pool
        case _:
            return 0.0
