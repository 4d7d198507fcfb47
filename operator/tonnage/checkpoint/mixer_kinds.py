"""Mixers beside plain, latent and linear attention, which are in checkpoint/model.py.

State spaces and convolutions keep a state of fixed size for each sequence; compressed attention
keeps a window of latents and one latent for each group of earlier tokens.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mamba:
    """Selective state space of the first generation: a state for each of `inner_size` channels.

    `normed` ones (Jamba) normalise the time step, B and C. vLLM quantises none of its matrices.
    Tensor parallelism has to divide `inner_size`.
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

    `groups` of heads share B and C. Tensor parallelism has to divide `heads`, and `groups` too
    unless there is a single one, which is then replicated. `state_element_bytes` is the size of
    an element of the recurrent state, None the model's own.
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
        """Width of what the state mixes."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """A gated convolution over the last few tokens (LFM2); its state is those tokens.

    Tensor parallelism has to divide `width`.
    """

    width: int
    kernel: int
    bias: bool = False


@dataclass(frozen=True, slots=True)
class DeltaAttention:
    """Kimi delta attention: a delta rule whose state decays channel by channel.

    Queries, keys and values pass a convolution; the state of a head is `head_dim` squared, 32-bit.
    `gate_rank` and `decay_rank` are the inner sizes of the projections to the output gate and to
    the decay, None where they are full. `row_multiple` rounds up what a rank projects the input to.
    Tensor parallelism has to divide `heads`.
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

    The state of a head is `head_dim` squared, in the model's dtype. `norm_groups` parts of the
    output are normalised by themselves: tensor parallelism has to divide them, and `heads`.
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

    DeepSeek-V4. Keys and values are one latent of `head_dim`, the same on every rank; a ratio of 1
    keeps nothing beyond the `window`. Where the groups overlap (`overlapping`), a state of two
    groups is kept while they are compressed, otherwise of one. `indexer_heads` of
    `indexer_head_dim` choose `index_top_k` of the compressed latents, 0 heads: all are read. The
    output leaves through `output_groups` low-rank projections of `output_rank`.
    Tensor parallelism has to divide `heads` and `output_groups`.
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
        """Whether the groups of tokens that are compressed overlap: only the shortest do."""
        return self.compress_ratio == OVERLAPPING_RATIO


OVERLAPPING_RATIO: Final = 4
"""The ratio whose groups overlap and whose latents are chosen by an indexer.

Source: vLLM 0.32.0, vllm/models/deepseek_v4/attention.py and compressor.py.
"""
