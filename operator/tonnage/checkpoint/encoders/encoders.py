"""Read the vision and audio encoders of a multimodal model."""

from collections.abc import Mapping
from dataclasses import replace

from tonnage.catalog.models.config_defaults import load_config_defaults
from tonnage.catalog.models.families import Families
from tonnage.checkpoint.encoders.audio import read_audio_encoder
from tonnage.checkpoint.encoders.vision import read_vision_encoder
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Encoder
from tonnage.checkpoint.quantization.module_formats import ModuleFormats


def read_encoders(
    config: ConfigFields, hidden_size: int, families: Families, formats: ModuleFormats
) -> tuple[Encoder, ...]:
    """Return the encoders of a multimodal model, none for a text model.

    `hidden_size` is the width of the language model, to which their projectors project. Raises
    CheckpointError.
    """
    family = config.text("model_type") or ""
    config = config.nested("thinker_config") or config
    vision = _with_defaults(
        config.nested("vision_config", "visual", "visual_tokenizer_config"),
        families.vision_defaults.get(family),
    )
    audio = _with_defaults(
        config.nested("audio_config", "audio_encoder_config"), families.audio_defaults.get(family)
    )
    encoders = []
    if vision is not None:
        encoders.append(read_vision_encoder(config, vision, family, hidden_size))
    if audio is not None:
        encoders.append(read_audio_encoder(config, audio, family, hidden_size))
    scheme = formats.encoders
    return tuple(replace(encoder, stored=scheme) for encoder in encoders if encoder.elements)


def _with_defaults(
    config: ConfigFields | None, defaults: Mapping[str, int] | None
) -> ConfigFields | None:
    """Return an encoder's config with the defaults of its family and of its model type."""
    if config is None:
        return None if defaults is None else ConfigFields(defaults, "config of an encoder.")
    config = config.completed_by(defaults or {})
    return config.completed_by(load_config_defaults().of(config.text("model_type") or ""))
