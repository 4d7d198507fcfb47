"""Blocks of a layer beside its MLP and experts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerEmbedding:
    """An embedding of `width` a token that each layer has for itself (Gemma 4 E, Gemma 3n).

    `vocab_size` are the tokens it knows.
    """

    width: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class ResidualStreams:
    """What keeps `count` hidden states in step, and a shortcut of low `rank` (Gemma 3n)."""

    count: int
    rank: int


@dataclass(frozen=True, slots=True)
class DraftProjection:
    """What a layer that predicts ahead joins a token's embedding and hidden state with.

    `sharded` over GPUs or whole on each.
    """

    sharded: bool = False
