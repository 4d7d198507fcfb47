"""Count the operations and the bytes read for one token."""

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
from tonnage.fit.kv_cache.states import mixer_states
from tonnage.fit.model import MemoryAccount
from tonnage.fit.weights.matrix import WeightPart
from tonnage.fit.weights.precision import COMPUTE_BYTES
from tonnage.fit.weights.tensors import WHOLE
from tonnage.fit.weights.total import count_parameters


@dataclass(frozen=True, slots=True)
class TokenWork:
    """A model's work over all GPUs of a replica.

    One token uses `active_parameters`: attention, the MLP or its experts, and the output layer;
    `active_expert_parameters` of them are experts, in `expert_layers` layers. A step does not read
    `embedding_bytes`, and of `expert_bytes` only experts that receive a token; a token's experts
    are the share `routed` of all. Sparse layers attend to `chosen_tokens`. `state_bytes` are the
    fixed-size states of one sequence in all layers.
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
        """Return the attention operations of one new token with this context."""
        return sum(
            2
            * count
            * mixer.heads
            * _decode_width(mixer)
            * self._count_attended(mixer, context_tokens)
            for mixer, count in self._attending
        )

    def prompt_attention(self, context_tokens: float) -> float:
        """Return the attention operations of one prompt token with this context before it."""
        return sum(
            2
            * count
            * mixer.heads
            * _prompt_width(mixer)
            * self._count_attended(mixer, context_tokens)
            for mixer, count in self._attending
        )

    @property
    def _attending(self) -> Iterator[tuple[Attending, int]]:
        counts = self.shape.mixer_counts.items()
        return ((mixer, count) for mixer, count in counts if isinstance(mixer, Attending))

    def weight_bytes(self, account: MemoryAccount, gpus: int, tokens: float) -> float:
        """Return the bytes of weights that one of the replica's GPUs reads in a step of `tokens`.

        Routing is assumed uniform: (1 - routed) ** tokens of the experts stay idle.
        """
        idle_share: float = (1 - self.routed) ** tokens
        unread_bytes = (self.embedding_bytes + self.expert_bytes * idle_share) / gpus
        return max(account.weights_bytes - unread_bytes, 0.0)

    def kv_bytes(self, account: MemoryAccount, requests: float, context_tokens: float) -> float:
        """Return the bytes of KV cache that one GPU reads in a step that decodes `requests`."""
        elements_per_token = read_elements = 0.0
        for mixer, count in self.shape.mixer_counts.items():
            width, indexer_width = _cached_width(mixer), _indexer_width(mixer)
            attended_tokens = self._count_attended(mixer, context_tokens)
            elements_per_token += count * (width * _kept_share(mixer) + indexer_width)
            read_elements += count * (width * attended_tokens + indexer_width * context_tokens)
        if not elements_per_token:
            return 0.0
        return requests * account.kv_bytes_per_token * read_elements / elements_per_token

    def state_bytes_moved(self, gpus: int, requests: float) -> float:
        """Return the bytes of states that one of the replica's GPUs reads and writes in a step."""
        return 2 * requests * self.state_bytes / gpus

    def _count_attended(self, mixer: Mixer, context_tokens: float) -> float:
        """Return the tokens that a layer attends to; a compressed group counts as one."""
        match mixer:
            case CompressedAttention():
                return _count_compressed_tokens(mixer, context_tokens)
            case LatentAttention(sparse=True) | Attention(indexer=SparseIndexer()):
                return min(context_tokens, self.chosen_tokens)
            case Attention(window=int(window)):
                return min(context_tokens, window)
        return context_tokens


@lru_cache(maxsize=256)
def token_work(shape: ModelShape, loaded: Quantization | None) -> TokenWork:
    """Return the work of a model with weights in the format `loaded` (None: 16 bits)."""
    parameters = count_parameters(shape)
    experts = parameters.get(WeightPart.EXPERTS, 0)
    embedding = parameters.get(WeightPart.EMBEDDINGS, 0)
    head = embedding if shape.tie_word_embeddings else parameters.get(WeightPart.LM_HEAD, 0)
    routed = shape.experts.per_token / shape.experts.count if shape.experts else 1.0
    dense_parts = (WeightPart.ATTENTION, WeightPart.MLP, WeightPart.ROUTER)
    dense = sum(parameters.get(part, 0) for part in dense_parts)
    return TokenWork(
        shape=shape,
        active_parameters=dense + head + experts * routed,
        active_expert_parameters=experts * routed,
        expert_layers=sum(
            count for layer, count in shape.layer_counts.items() if _has_experts(layer)
        ),
        embedding_bytes=0 if shape.tie_word_embeddings else embedding * 2,
        expert_bytes=experts * (loaded.weight_bits if loaded else 16) / 8,
        routed=routed,
        chosen_tokens=_find_chosen_tokens(shape),
        state_bytes=_count_state_bytes(shape),
    )


def _count_state_bytes(shape: ModelShape) -> int:
    """Return the bytes of one sequence's states in all layers, without sharding."""
    return sum(
        count * tensor.size_bytes
        for mixer, count in shape.mixer_counts.items()
        if isinstance(mixer, StateMixer)
        for tensor in mixer_states(mixer, WHOLE, COMPUTE_BYTES)
    )


def _find_chosen_tokens(shape: ModelShape) -> int:
    """Return the most tokens that an indexer chooses, 0 without indexers."""
    indexers = (getattr(mixer, "indexer", None) for mixer in shape.mixer_counts)
    return max(
        (indexer.top_k * indexer.pool for indexer in indexers if indexer is not None), default=0
    )


def _count_compressed_tokens(mixer: CompressedAttention, context_tokens: float) -> float:
    compressed = context_tokens / mixer.compress_ratio if mixer.compress_ratio > 1 else 0.0
    chosen = min(compressed, mixer.index_top_k) if mixer.indexer_heads else compressed
    return min(context_tokens, mixer.window) + chosen


def _kept_share(mixer: Mixer) -> float:
    """Return the cache entries that each further token of a long context adds to a layer."""
    if isinstance(mixer, CompressedAttention):
        return 1 / mixer.compress_ratio if mixer.compress_ratio > 1 else 0.0
    return 0.0 if isinstance(mixer, Attention) and mixer.window is not None else 1.0


def _has_experts(layer: DecoderLayer) -> bool:
    return any(isinstance(block, Experts) for block in layer.feed_forwards)


def _prompt_width(mixer: Attending) -> int:
    """Return the key and value elements of a head that a query multiplies in prefill."""
    if isinstance(mixer, LatentAttention):
        return mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
    if isinstance(mixer, CompressedAttention):
        return 2 * mixer.head_dim
    return mixer.head_dim + mixer.value_head_dim


def _decode_width(mixer: Attending) -> int:
    """Return the same in decoding, where every head multiplies the complete latent."""
    if isinstance(mixer, LatentAttention):
        return 2 * mixer.kv_lora_rank + mixer.qk_rope_head_dim
    return _prompt_width(mixer)


def _cached_width(mixer: Mixer) -> int:
    """Return the elements of a token in the layer's cache, 0 for a layer with a state."""
    match mixer:
        case Attention():
            return mixer.kv_heads * (mixer.head_dim + mixer.value_head_dim)
        case LatentAttention():
            return mixer.kv_lora_rank + mixer.qk_rope_head_dim
        case CompressedAttention():
            return mixer.head_dim
        case _:
            return 0


def _indexer_width(mixer: Mixer) -> float:
    """Return the elements of a token's key in the indexer's cache, which the indexer reads fully.

    The keys of latent attention have 8 bits, half an element of the cache.
    """
    match mixer:
        case LatentAttention(indexer=SparseIndexer() as indexer):
            return indexer.head_dim / indexer.pool / 2
        case Attention(indexer=SparseIndexer() as indexer):
            return indexer.head_dim / indexer.pool
        case _:
            return 0.0
