"""The state that a layer keeps of one sequence on one rank instead of keys and values.

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
from tonnage.fit.weights.linear_attention import convolved_width
from tonnage.fit.weights.matrix import FLOAT32_BYTES, Sharding
from tonnage.fit.weights.state_space import mamba2_convolved_width


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
    mixer: StateMixer, sharding: Sharding, model_bytes: int, speculative_tokens: int = 0
) -> tuple[StateTensor, ...]:
    """The state tensors of one sequence in one layer on one rank, in the order vLLM lists them.

    The convolution's last inputs come first, in the model's dtype (`model_bytes` per element,
    `--mamba-cache-dtype auto`); each of `speculative_tokens` adds one. The recurrent state follows,
    if the mixer has one, in the dtype that the model sets. The sum of their sizes is the page of a
    MambaSpec before padding.
    """
    match mixer:
        case LinearAttention():
            return _delta_net(mixer, sharding, model_bytes, speculative_tokens)
        case DeltaAttention():
            conv_inputs = mixer.conv_kernel - 1 + speculative_tokens
            inner = sharding.shard(mixer.inner_size)
            return (
                StateTensor(3 * inner * conv_inputs, model_bytes),
                StateTensor(inner * mixer.head_dim, FLOAT32_BYTES),  # kda_state_dtype
            )
        case LightningAttention():
            return (StateTensor(sharding.shard(mixer.inner_size) * mixer.head_dim, model_bytes),)
        case Mamba():
            inner = sharding.shard(mixer.inner_size)
            return (
                StateTensor(inner * (mixer.conv_kernel - 1), model_bytes),
                StateTensor(inner * mixer.state_size, model_bytes),
            )
        case Mamba2():
            conv_inputs = mixer.conv_kernel - 1 + speculative_tokens
            recurrent = sharding.shard(mixer.heads) * mixer.head_dim * mixer.state_size
            return (
                StateTensor(mamba2_convolved_width(mixer, sharding) * conv_inputs, model_bytes),
                StateTensor(recurrent, mixer.state_element_bytes or model_bytes),
            )
        case ShortConvolution():
            conv_inputs = mixer.kernel - 1 + speculative_tokens
            return (StateTensor(sharding.shard(mixer.width) * conv_inputs, model_bytes),)


def _delta_net(
    mixer: LinearAttention, sharding: Sharding, model_bytes: int, speculative_tokens: int
) -> tuple[StateTensor, ...]:
    heads = sharding.shard(mixer.value_heads)
    conv_inputs = mixer.conv_kernel - 1 + speculative_tokens
    recurrent_element_bytes = (
        model_bytes if mixer.state_dtype is None else mixer.state_dtype.size_bytes
    )
    return (
        StateTensor(convolved_width(mixer, sharding) * conv_inputs, model_bytes),
        StateTensor(heads * mixer.value_head_dim * mixer.key_head_dim, recurrent_element_bytes),
    )


def state_mixer_input(mixer: StateMixer, sharding: Sharding) -> int:
    """Elements per token that the projections before the state produce on one rank."""
    match mixer:
        case LinearAttention():
            return convolved_width(mixer, sharding) + state_mixer_output(mixer, sharding)
        case DeltaAttention() | LightningAttention():
            return 4 * sharding.shard(mixer.inner_size)
        case Mamba():
            return 2 * sharding.shard(mixer.inner_size)
        case Mamba2():
            heads = sharding.shard(mixer.heads)
            return heads * mixer.head_dim + mamba2_convolved_width(mixer, sharding) + heads
        case ShortConvolution():
            return 3 * sharding.shard(mixer.width)


def state_mixer_output(mixer: StateMixer, sharding: Sharding) -> int:
    """Elements per token that the state produces on one rank, before the output projection."""
    match mixer:
        case LinearAttention():
            return sharding.shard(mixer.value_heads) * mixer.value_head_dim
        case DeltaAttention() | LightningAttention() | Mamba() | Mamba2():
            return sharding.shard(mixer.inner_size)
        case ShortConvolution():
            return sharding.shard(mixer.width)
