"""What one token asks of the hardware: operations, and bytes that are read for it."""

from dataclasses import dataclass
from functools import lru_cache

from tonnage.checkpoint.model import ModelShape, Quantization
from tonnage.fit.model import MemoryAccount
from tonnage.fit.tensors import WeightPart
from tonnage.fit.weights import count_parameters


@dataclass(frozen=True, slots=True)
class TokenWork:
    """A model's work over all GPUs of a replica.

    `active_parameters` take part in one token: attention, the MLP or the experts it is sent to,
    and the output layer. `embedding_bytes` are not read in a step, `expert_bytes` only as far as
    some token is sent there; `routed` is the share of the experts that one token is sent to.
    """

    shape: ModelShape
    active_parameters: float
    embedding_bytes: float
    expert_bytes: float
    routed: float

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.shape.layers - self.shape.sliding_layers - self.shape.linear_layers

    def operations(self, tokens: float, context_tokens: float) -> float:
        """Operations for so many tokens, each attending to a context of that length on average."""
        shape = self.shape
        reach = self.full_layers * context_tokens
        if shape.sliding_window is not None:
            reach += shape.sliding_layers * min(context_tokens, shape.sliding_window)
        attention = 4 * shape.attention_heads * shape.head_dim * reach
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
        if self.full_layers <= 0:
            return 0.0
        tokens = context_tokens
        if self.shape.sliding_window is not None:
            sliding = min(context_tokens, self.shape.sliding_window)
            tokens += self.shape.sliding_layers / self.full_layers * sliding
        return requests * tokens * account.kv_bytes_per_token


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
    )
