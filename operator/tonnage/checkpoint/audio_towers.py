"""Audio towers by family: layers over spectrograms, and what joins frames and projects them.

Each reader names the module of vLLM 0.32.0 it follows (vllm/model_executor/models).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.encoders import (
    LAYER_NORMS,
    Encoder,
    make_tower,
    make_whole_tower,
    two_layers,
)
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Tower

Reader = Callable[[ConfigFields, ConfigFields, int], Tower]
"""From the whole config, its audio part and the language model's width to the tower."""

_FRAMES: Final = 1500
"""Places of a spectrogram of thirty seconds (Whisper's max_source_positions)."""


def read_audio_tower(
    whole: ConfigFields, audio: ConfigFields, family: str, hidden_size: int
) -> Tower:
    """The audio tower; one of an unknown family is estimated by Whisper's form.

    Raises CheckpointError.
    """
    kind = audio.text("model_type") or ""
    reader = _READERS.get(family) or _READERS.get(kind) or _read_unknown
    return reader(whole, audio, hidden_size)


def _read_whisper(audio: ConfigFields) -> Encoder:
    width = audio.count("d_model", "hidden_size", "attention_dim")
    heads = audio.count("encoder_attention_heads", "num_attention_heads")
    return Encoder(
        layers=audio.count("encoder_layers", "num_hidden_layers", "num_blocks"),
        width=width,
        inner=audio.count("encoder_ffn_dim", "intermediate_size") or 4 * width,
        heads=heads,
        attention=width,
        kv=width,
        norms=LAYER_NORMS,
    )


def _convolutions(audio: ConfigFields, width: int) -> int:
    """Two convolutions over three frames, the norm behind the layers."""
    bins = audio.count("num_mel_bins") or 128
    return 3 * width * (bins + width) + 4 * width


def _places(audio: ConfigFields, width: int) -> int:
    return (audio.count("max_source_positions") or _FRAMES) * width


def _read_transformers_whisper(
    whole: ConfigFields, audio: ConfigFields, hidden_size: int, projector: int
) -> Tower:
    """Qwen2AudioEncoder of transformers: whole on every GPU, keys have no biases."""
    encoder = _read_whisper(audio)
    around = _convolutions(audio, encoder.width) + _places(audio, encoder.width) + projector
    return make_whole_tower(encoder, around - encoder.layers * encoder.width)


def _read_qwen2_audio(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """qwen2_audio.py: one layer projects."""
    projector = (_read_whisper(audio).width + 1) * hidden_size
    return _read_transformers_whisper(whole, audio, hidden_size, projector)


def _read_flamingo(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """audioflamingo3.py: two layers project."""
    projector = two_layers(_read_whisper(audio).width, hidden_size, hidden_size)
    return _read_transformers_whisper(whole, audio, hidden_size, projector)


def _read_qwen2_omni(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """qwen2_5_omni_thinker.py: sines in 32 bits for positions, vectors for begin and end."""
    width, out = _read_whisper(audio).width, audio.count("output_dim") or hidden_size
    projector = (width + 3) * out + _places(audio, width)
    return _read_transformers_whisper(whole, audio, hidden_size, projector)


def _read_ultravox(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """ultravox.py: Whisper's encoder, sharded; the projector of stacked frames is whole."""
    encoder, inner = _read_whisper(audio), whole.positive("hidden_size", default=hidden_size)
    stacked = encoder.width * (whole.count("stack_factor") or 8)
    gated = whole.text("projector_act") in (None, "swiglu")
    half = inner // 2 if gated else inner
    projector = stacked * (1 + inner) + half * (1 + hidden_size)
    around = _convolutions(audio, encoder.width) + _places(audio, encoder.width)
    return make_tower(encoder, 0, around + projector)


def _read_voxtral(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """voxtral.py: Whisper's encoder, sharded; four frames are projected at a time."""
    encoder = _read_whisper(audio)
    around = _convolutions(audio, encoder.width) + _places(audio, encoder.width)
    projector = (4 * encoder.width + hidden_size) * hidden_size
    return make_tower(encoder, 0, around + projector)


def _read_qwen3(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """qwen3_omni_moe_thinker.py, qwen3_asr.py: three convolutions halve the frames and bins."""
    encoder, channels = _read_whisper(audio), audio.count("downsample_hidden_size") or 480
    width, out = encoder.width, audio.count("output_dim") or hidden_size
    bins = audio.count("num_mel_bins") or 128
    for _ in range(3):
        bins = (bins + 1) // 2
    convolutions = 10 * channels + 2 * channels * (9 * channels + 1) + channels * bins * width
    around = convolutions + 2 * _places(audio, width) + 2 * width
    return make_tower(encoder, 0, around + two_layers(width, width, out))


def _read_glm(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """glmasr.py: rotary positions, and a projector of joined frames, sharded."""
    encoder = _read_whisper(audio)
    projector = two_layers(encoder.inner, 2 * hidden_size, hidden_size) - hidden_size
    return make_tower(encoder, projector, _convolutions(audio, encoder.width) + hidden_size)


def _read_gemma3n(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """gemma3n_mm.py: a conformer, whole; embeddings of its own, sharded."""
    width, rows = audio.positive("hidden_size"), audio.count("vocab_size")
    layers = audio.count("conf_num_hidden_layers") or 12
    return Tower(width * (rows + hidden_size), _conformer(layers, width) + 2 * width)


def _read_gemma4(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """gemma4_mm.py: the conformer of Gemma 3n, whole, with a wider output."""
    width, out = audio.positive("hidden_size"), audio.count("output_proj_dims") or 1536
    layers = audio.count("num_hidden_layers") or 12
    return Tower(0, _conformer(layers, width) + out * (width + 1 + hidden_size))


def _conformer(layers: int, width: int) -> int:
    """Two MLPs of four widths, attention with relative places, a gated convolution over five."""
    subsampling = 128 * 9 + 32 * 128 * 9 + 1024 * width
    return layers * (24 * width + 14) * width + subsampling


def _read_unknown(whole: ConfigFields, audio: ConfigFields, hidden_size: int) -> Tower:
    """Whisper's form with a projector of one layer, all of it counted as whole on every GPU."""
    encoder = _read_whisper(audio)
    around = _convolutions(audio, encoder.width) + encoder.width * hidden_size
    return replace(make_whole_tower(encoder, around), estimated=True)


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
"""Readers by the model's type, else by that of its audio part."""
