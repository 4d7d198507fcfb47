"""Audio encoders by family: layers over spectrograms, and the projector of their frames.

Each reader names the module of vLLM 0.32.0 that it follows (vllm/model_executor/models).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.encoders.layers import (
    LAYER_NORMS,
    EncoderLayers,
    count_two_layers,
    make_replicated_encoder,
    make_sharded_encoder,
)
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Encoder

Reader = Callable[[ConfigFields, ConfigFields, int], Encoder]
"""Reads an encoder from the root config, its audio config and the language model's width."""

_FRAMES: Final = 1500
"""Positions of a spectrogram of 30 seconds (Whisper's max_source_positions)."""


def read_audio_encoder(
    config: ConfigFields, audio: ConfigFields, family: str, hidden_size: int
) -> Encoder:
    """Return the audio encoder; for an unknown family, an estimate with Whisper's layout.

    Raises CheckpointError.
    """
    model_type = audio.text("model_type") or ""
    reader = _READERS.get(family) or _READERS.get(model_type) or _read_unknown
    return reader(config, audio, hidden_size)


def _read_whisper(audio: ConfigFields) -> EncoderLayers:
    width = audio.count("d_model", "hidden_size", "attention_dim")
    heads = audio.count("encoder_attention_heads", "num_attention_heads")
    return EncoderLayers(
        layers=audio.count("encoder_layers", "num_hidden_layers", "num_blocks"),
        width=width,
        inner=audio.count("encoder_ffn_dim", "intermediate_size") or 4 * width,
        heads=heads,
        attention=width,
        kv=width,
        norms=LAYER_NORMS,
    )


def _count_convolutions(audio: ConfigFields, width: int) -> int:
    """Count the weights of two convolutions over three frames, and of the final norm."""
    bins = audio.count("num_mel_bins") or 128
    return 3 * width * (bins + width) + 4 * width


def _count_positions(audio: ConfigFields, width: int) -> int:
    return (audio.count("max_source_positions") or _FRAMES) * width


def _read_transformers_whisper(
    config: ConfigFields, audio: ConfigFields, hidden_size: int, projector: int
) -> Encoder:
    """Qwen2AudioEncoder of transformers: replicated, keys have no biases."""
    encoder = _read_whisper(audio)
    convolutions = _count_convolutions(audio, encoder.width)
    key_biases = encoder.layers * encoder.width
    other = convolutions + _count_positions(audio, encoder.width) + projector - key_biases
    return make_replicated_encoder(encoder, other)


def _read_qwen2_audio(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """qwen2_audio.py: a projector of one layer."""
    projector = (_read_whisper(audio).width + 1) * hidden_size
    return _read_transformers_whisper(config, audio, hidden_size, projector)


def _read_flamingo(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """audioflamingo3.py: a projector of two layers."""
    projector = count_two_layers(_read_whisper(audio).width, hidden_size, hidden_size)
    return _read_transformers_whisper(config, audio, hidden_size, projector)


def _read_qwen2_omni(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """qwen2_5_omni_thinker.py: 32-bit sines for positions, vectors for begin and end."""
    width, out = _read_whisper(audio).width, audio.count("output_dim") or hidden_size
    projector = (width + 3) * out + _count_positions(audio, width)
    return _read_transformers_whisper(config, audio, hidden_size, projector)


def _read_ultravox(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """ultravox.py: Whisper's encoder, sharded; the projector of stacked frames is replicated."""
    encoder, inner = _read_whisper(audio), config.positive("hidden_size", default=hidden_size)
    stacked = encoder.width * (config.count("stack_factor") or 8)
    gated = config.text("projector_act") in (None, "swiglu")
    half = inner // 2 if gated else inner
    projector = stacked * (1 + inner) + half * (1 + hidden_size)
    other = _count_convolutions(audio, encoder.width) + _count_positions(audio, encoder.width)
    return make_sharded_encoder(encoder, 0, other + projector)


def _read_voxtral(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """voxtral.py: Whisper's encoder, sharded; the projector takes four frames at a time."""
    encoder = _read_whisper(audio)
    other = _count_convolutions(audio, encoder.width) + _count_positions(audio, encoder.width)
    projector = (4 * encoder.width + hidden_size) * hidden_size
    return make_sharded_encoder(encoder, 0, other + projector)


def _read_qwen3(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """qwen3_omni_moe_thinker.py, qwen3_asr.py: three convolutions, each halves frames and bins."""
    encoder, channels = _read_whisper(audio), audio.count("downsample_hidden_size") or 480
    width, out = encoder.width, audio.count("output_dim") or hidden_size
    bins = audio.count("num_mel_bins") or 128
    for _ in range(3):
        bins = (bins + 1) // 2
    convolutions = 10 * channels + 2 * channels * (9 * channels + 1) + channels * bins * width
    other = convolutions + 2 * _count_positions(audio, width) + 2 * width
    return make_sharded_encoder(encoder, 0, other + count_two_layers(width, width, out))


def _read_glm(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """glmasr.py: rotary positions, and a sharded projector of merged frames."""
    encoder = _read_whisper(audio)
    projector = count_two_layers(encoder.inner, 2 * hidden_size, hidden_size) - hidden_size
    return make_sharded_encoder(
        encoder, projector, _count_convolutions(audio, encoder.width) + hidden_size
    )


def _read_gemma3n(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """gemma3n_mm.py: a replicated conformer, and sharded embeddings of its own."""
    width, vocab_size = audio.positive("hidden_size"), audio.count("vocab_size")
    layers = audio.count("conf_num_hidden_layers") or 12
    return Encoder(width * (vocab_size + hidden_size), _count_conformer(layers, width) + 2 * width)


def _read_gemma4(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """gemma4_mm.py: the replicated conformer of Gemma 3n with a wider output."""
    width, out = audio.positive("hidden_size"), audio.count("output_proj_dims") or 1536
    layers = audio.count("num_hidden_layers") or 12
    return Encoder(0, _count_conformer(layers, width) + out * (width + 1 + hidden_size))


def _count_conformer(layers: int, width: int) -> int:
    """Count the weights of a conformer's layers and of its subsampling.

    A layer has two MLPs of four widths, attention with relative positions and a gated convolution
    over five frames.
    """
    subsampling = 128 * 9 + 32 * 128 * 9 + 1024 * width
    return layers * (24 * width + 14) * width + subsampling


def _read_unknown(config: ConfigFields, audio: ConfigFields, hidden_size: int) -> Encoder:
    """Estimate Whisper's layers and a projector of one layer, all of them replicated."""
    encoder = _read_whisper(audio)
    other = _count_convolutions(audio, encoder.width) + encoder.width * hidden_size
    return replace(make_replicated_encoder(encoder, other), estimated=True)


_READERS: Final[Mapping[str, Reader]] = {
    "qwen2_audio": _read_qwen2_audio,
    "audioflamingo3": _read_flamingo,
    "qwen2_5_omni": _read_qwen2_omni,
    "qwen3_omni_moe": _read_qwen3,
    "qwen3_asr": _read_qwen3,
    "ultravox": _read_ultravox,
    "voxtral": _read_voxtral,
    "glmasr": _read_glm,
    "gemma3n": _read_gemma3n,
    "gemma4": _read_gemma4,
}
"""Readers by the `model_type` of the root config or of the audio config."""
