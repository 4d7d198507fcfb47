"""What a layer keeps of one sequence on one rank where it keeps a state, not keys and values.

Source: vLLM 0.32.0, vllm/model_executor/layers/mamba/mamba_utils.py, MambaStateShapeCalculator and
MambaStateDtypeCalculator.
"""

from dataclasses import dataclass

from tonnage.checkpoint.mixer_kinds import (
    DeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    ShortConvolution,
)
from tonnage.checkpoint.model import LinearAttention, StateMixer
from tonnage.fit.linear_attention_tensors import convolved_width
from tonnage.fit.matrix import FLOAT32_BYTES, Split
from tonnage.fit.state_space_tensors import mamba2_convolved_width


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of a sequence's state in one layer: `elements` of `element_bytes` each."""

    elements: int
    element_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor."""
        return self.elements * self.element_bytes


def mixer_states(
    mixer: StateMixer, split: Split, model_bytes: int, draft_tokens: int = 0
) -> tuple[StateTensor, ...]:
    """The state tensors of one sequence in one layer on one rank, in the order vLLM lists them.

    The convolution's last inputs come first, in the model's dtype (`model_bytes` an element,
    `--mamba-cache-dtype auto`); each of `draft_tokens` that are speculated adds one. The recurrent
    state follows where there is one, in the dtype that the model asks for. The sum of their sizes
    is the page of a MambaSpec before it is padded.
    """
    match mixer:
        case LinearAttention():
            return _delta_net(mixer, split, model_bytes, draft_tokens)
        case DeltaAttention():
            kept = mixer.conv_kernel - 1 + draft_tokens
            inner = split.shard(mixer.inner_size)
            return (
                StateTensor(3 * inner * kept, model_bytes),
                StateTensor(inner * mixer.head_dim, FLOAT32_BYTES),  # kda_state_dtype
            )
        case LightningAttention():
            return (StateTensor(split.shard(mixer.inner_size) * mixer.head_dim, model_bytes),)
        case Mamba():
            inner = split.shard(mixer.inner_size)
            return (
                StateTensor(inner * (mixer.conv_kernel - 1), model_bytes),
                StateTensor(inner * mixer.state_size, model_bytes),
            )
        case Mamba2():
            kept = mixer.conv_kernel - 1 + draft_tokens
            recurrent = split.shard(mixer.heads) * mixer.head_dim * mixer.state_size
            return (
                StateTensor(mamba2_convolved_width(mixer, split) * kept, model_bytes),
                StateTensor(recurrent, mixer.state_element_bytes or model_bytes),
            )
        case ShortConvolution():
            kept = mixer.kernel - 1 + draft_tokens
            return (StateTensor(split.shard(mixer.width) * kept, model_bytes),)


def _delta_net(
    mixer: LinearAttention, split: Split, model_bytes: int, draft_tokens: int
) -> tuple[StateTensor, ...]:
    heads = split.shard(mixer.value_heads)
    kept = mixer.conv_kernel - 1 + draft_tokens
    recurrent = model_bytes if mixer.state_dtype is None else mixer.state_dtype.size_bytes
    return (
        StateTensor(convolved_width(mixer, split) * kept, model_bytes),
        StateTensor(heads * mixer.value_head_dim * mixer.key_head_dim, recurrent),
    )


def state_mixer_input(mixer: StateMixer, split: Split) -> int:
    """Elements a token that the projections in front of the state put out on one rank."""
    match mixer:
        case LinearAttention():
            return convolved_width(mixer, split) + state_mixer_output(mixer, split)
        case DeltaAttention() | LightningAttention():
            return 4 * split.shard(mixer.inner_size)
        case Mamba():
            return 2 * split.shard(mixer.inner_size)
        case Mamba2():
            heads = split.shard(mixer.heads)
            return heads * mixer.head_dim + mamba2_convolved_width(mixer, split) + heads
        case ShortConvolution():
            return 3 * split.shard(mixer.width)


def state_mixer_output(mixer: StateMixer, split: Split) -> int:
    """Elements a token that come out of the state on one rank, before the output projection."""
    match mixer:
        case LinearAttention():
            return split.shard(mixer.value_heads) * mixer.value_head_dim
        case DeltaAttention() | LightningAttention() | Mamba() | Mamba2():
            return split.shard(mixer.inner_size)
        case ShortConvolution():
            return split.shard(mixer.width)
