"""Feed-forward blocks other than MLPs and experts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerEmbedding:
    """A per-layer embedding of `width` elements a token (Gemma 4 E, Gemma 3n).

    `vocab_size` is its number of tokens.
    """

    width: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class ResidualStreams:
    """The mixing of `count` residual streams, and a shortcut of low `rank` (Gemma 3n)."""

    count: int
    rank: int


@dataclass(frozen=True, slots=True)
class DraftProjection:
    """The projection of an MTP layer, which joins a token's embedding and hidden state.

    `sharded` over GPUs, or replicated on each.
    """

    sharded: bool = False
