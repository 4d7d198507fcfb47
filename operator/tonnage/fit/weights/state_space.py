"""The weight matrices of state spaces and short convolutions on one rank.

Sources: vLLM 0.32.0, vllm/model_executor/layers/mamba/mamba_mixer.py, mamba_mixer2.py and
short_conv.py. A rank holds its part of the channels or heads, with their decay and skip.
"""

from collections.abc import Iterator
from typing import Final

from tonnage.checkpoint.mixer_kinds import Mamba, Mamba2, ShortConvolution
from tonnage.fit.weights.matrix import FLOAT32_BYTES, Matrix, Sharding, WeightPart

_PART: Final = WeightPart.ATTENTION


def mamba_matrices(mixer: Mamba, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """First generation: vLLM passes no quantisation method to its layers."""
    inner = sharding.shard(mixer.inner_size)
    selected = mixer.time_step_rank + 2 * mixer.state_size
    bias = 1 if mixer.projection_bias else 0
    yield Matrix(_PART, None, 2 * inner, hidden, biases=bias * 2 * inner)
    yield _convolution(inner, mixer.conv_kernel, mixer.conv_bias)
    yield Matrix(_PART, None, selected, inner)
    yield Matrix(_PART, None, inner, mixer.time_step_rank, biases=inner)
    yield Matrix(_PART, None, inner, mixer.state_size, element_bytes=FLOAT32_BYTES)  # decay
    yield Matrix(_PART, None, inner, 1)  # skip
    yield Matrix(_PART, None, hidden, inner, biases=bias * hidden)
    if mixer.normed:
        yield Matrix(WeightPart.NORMS, None, selected, 1)


def mamba2_matrices(mixer: Mamba2, hidden: int, sharding: Sharding) -> Iterator[Matrix]:
    """Second generation: a single group is replicated on every rank."""
    inner, heads = sharding.shard(mixer.inner_size), sharding.shard(mixer.heads)
    convolved = mamba2_convolved_width(mixer, sharding)
    bias = 1 if mixer.projection_bias else 0
    projected = inner + convolved + heads
    yield Matrix(_PART, "mamba.in_proj", projected, hidden, biases=bias * projected)
    yield _convolution(convolved, mixer.conv_kernel, mixer.conv_bias)
    yield Matrix(_PART, None, heads, 1, element_bytes=FLOAT32_BYTES)  # decay
    yield Matrix(_PART, None, heads, 2)  # skip and the bias of the time step
    yield Matrix(_PART, "mamba.out_proj", hidden, inner, row_parallel=True, biases=bias * hidden)
    if mixer.normed:
        yield Matrix(WeightPart.NORMS, None, inner, 1)


def short_convolution_matrices(
    mixer: ShortConvolution, hidden: int, sharding: Sharding
) -> Iterator[Matrix]:
    """Three fused input projections, a convolution, and the output projection."""
    width, bias = sharding.shard(mixer.width), 1 if mixer.bias else 0
    yield Matrix(_PART, "conv.in_proj", 3 * width, hidden, biases=bias * 3 * width)
    yield _convolution(width, mixer.kernel, mixer.bias)
    yield Matrix(_PART, "conv.out_proj", hidden, width, row_parallel=True, biases=bias * hidden)


def mamba2_convolved_width(mixer: Mamba2, sharding: Sharding) -> int:
    """Channels of the convolution on one rank: inner channels, and B and C of its groups.

    Source: vllm/model_executor/layers/mamba/mamba_utils.py extra_groups_for_head_shards: every
    rank has a single group.
    """
    return sharding.shard(mixer.inner_size) + 2 * sharding.shard(mixer.groups) * mixer.state_size


def _convolution(channels: int, kernel: int, biased: bool) -> Matrix:
    return Matrix(_PART, None, channels, kernel, biases=channels if biased else 0)
