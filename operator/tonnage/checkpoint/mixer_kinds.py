"""Mixers other than plain, latent and linear attention, which are in checkpoint/model.py.

State spaces and convolutions keep a fixed-size state for each sequence; compressed attention keeps
a window of latents and one latent for each group of earlier tokens.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mamba:
    """Selective state space of the first generation: a state for each of `inner_size` channels.

    With `normed` (Jamba) it normalises the time step, B and C. vLLM does not quantise its matrices.
    `inner_size` must be divisible by the tensor-parallel size.
    """

    inner_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int
    conv_bias: bool = True
    projection_bias: bool = False
    normed: bool = False


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Selective state space of the second generation: a state for each head.

    `groups` of heads share B and C. `heads` must be divisible by the tensor-parallel size, and so
    must `groups` unless there is only one, which is replicated. `state_element_bytes` is the size
    of an element of the recurrent state, None for the model's dtype.
    """

    heads: int
    head_dim: int
    state_size: int
    groups: int
    conv_kernel: int
    conv_bias: bool = True
    projection_bias: bool = False
    normed: bool = True
    state_element_bytes: int | None = None

    @property
    def inner_size(self) -> int:
        """Width of all heads together, as in the state."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """A gated convolution over the last few tokens (LFM2), which are its state.

    `width` must be divisible by the tensor-parallel size.
    """

    width: int
    kernel: int
    bias: bool = False


@dataclass(frozen=True, slots=True)
class DeltaAttention:
    """Kimi delta attention: a delta rule whose state decays per channel.

    Queries, keys and values pass a convolution; the state of a head has `head_dim` squared 32-bit
    elements. `gate_rank` and `decay_rank` are the inner sizes of the projections to the output gate
    and to the decay, None for full rank. A rank's rows of the input projection are a multiple of
    `row_multiple`. `heads` must be divisible by the tensor-parallel size.
    """

    heads: int
    head_dim: int
    conv_kernel: int
    gate_rank: int | None = None
    decay_rank: int | None = None
    row_multiple: int = 1

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class LightningAttention:
    """Linear attention with a fixed decay for each head (Ring, Ling 2.5).

    The state of a head has `head_dim` squared elements of the model's dtype. The output is
    normalised in `norm_groups`; they and `heads` must be divisible by the tensor-parallel size.
    """

    heads: int
    head_dim: int
    norm_groups: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = True

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Attention to latents: those of a window, and one for each `compress_ratio` earlier tokens.

    DeepSeek-V4. Keys and values are one latent of `head_dim`, replicated on every rank; a ratio of
    1 keeps only the `window`. During compression a layer keeps a state of one group, of two if
    groups overlap (`overlapping`). `indexer_heads` of `indexer_head_dim` choose `index_top_k` of
    the compressed latents; with 0 heads, attention reads all. The output has `output_groups`
    low-rank projections of `output_rank`. `heads` and `output_groups` must be divisible by the
    tensor-parallel size.
    """

    heads: int
    head_dim: int
    rope_head_dim: int
    query_rank: int
    output_rank: int
    output_groups: int
    window: int
    compress_ratio: int = 1
    indexer_heads: int = 0
    indexer_head_dim: int = 0
    index_top_k: int = 0

    @property
    def overlapping(self) -> bool:
        """Whether the compressed groups of tokens overlap: only the shortest do."""
        return self.compress_ratio == OVERLAPPING_RATIO


OVERLAPPING_RATIO: Final = 4
"""The compression ratio with overlapping groups and an indexer.

Source: vLLM 0.32.0, vllm/models/deepseek_v4/attention.py and compressor.py.
"""
