"""The towers that a multimodal model has beside its language model: images in, or sound."""

from collections.abc import Mapping
from dataclasses import replace

from tonnage.catalog.config_defaults import load_config_defaults
from tonnage.catalog.families import Families
from tonnage.checkpoint.audio_towers import read_audio_tower
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Tower
from tonnage.checkpoint.module_formats import ModuleFormats
from tonnage.checkpoint.vision_towers import read_vision_tower


def read_towers(
    whole: ConfigFields, hidden_size: int, families: Families, formats: ModuleFormats
) -> tuple[Tower, ...]:
    """The encoders of a multimodal model, none for a text model.

    `hidden_size` is the language model's, which their projectors lead to. Raises CheckpointError.
    """
    family = whole.text("model_type") or ""
    whole = whole.nested("thinker_config") or whole
    vision = _with_defaults(
        whole.nested("vision_config", "visual", "visual_tokenizer_config"),
        families.vision_defaults.get(family),
    )
    audio = _with_defaults(
        whole.nested("audio_config", "audio_encoder_config"), families.audio_defaults.get(family)
    )
    towers = []
    if vision is not None:
        towers.append(read_vision_tower(whole, vision, family, hidden_size))
    if audio is not None:
        towers.append(read_audio_tower(whole, audio, family, hidden_size))
    stored = formats.towers
    return tuple(replace(tower, stored=stored) for tower in towers if tower.elements)


def _with_defaults(
    given: ConfigFields | None, defaults: Mapping[str, int] | None
) -> ConfigFields | None:
    """The config of a tower with what the classes of its model and its own add to it."""
    if given is None:
        return None if defaults is None else ConfigFields(defaults, "config of a tower.")
    filled = given.completed_by(defaults or {})
    return filled.completed_by(load_config_defaults().of(filled.text("model_type") or ""))
