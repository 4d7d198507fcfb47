"""The largest image or clip that vLLM profiles each multimodal architecture with."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache

from pydantic import Field
from pydantic.dataclasses import dataclass

from tonnage.catalog.data_files import Entry, PositiveInt, read_data_file
from tonnage.catalog.model import STRICT


@dataclass(frozen=True, slots=True, config=STRICT)
class EncoderItem:
    """One image or clip of the largest size; encoders.yaml explains the fields.

    It has `tokens` in the language model, each merged from `patches_per_token` patches in an
    encoder of `width`; `clips` is 1 and `charged_tokens` 0 if they do not apply.
    """

    tokens: PositiveInt
    patches_per_token: PositiveInt
    width: PositiveInt
    outputs: PositiveInt = 1
    clips: PositiveInt = 1
    charged_tokens: int = 0
    per_sequence: bool = False


class EncodersFile(Entry):
    """encoders.yaml; the entry `default` applies to unlisted classes."""

    compiled: date
    encoders: Mapping[str, EncoderItem] = Field(min_length=1)


@lru_cache(maxsize=256)
def encoder_item(architecture: str) -> EncoderItem:
    """The item that vLLM profiles a model of that class with."""
    encoders = _load().encoders
    return encoders.get(architecture) or encoders["default"]


@lru_cache(maxsize=1)
def _load() -> EncodersFile:
    return EncodersFile.model_validate(read_data_file("encoders.yaml"))
