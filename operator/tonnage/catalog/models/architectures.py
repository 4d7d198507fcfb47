"""Model classes and their support in vLLM."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT
from tonnage.catalog.models.families import Families
from tonnage.catalog.vllm.releases import parse_version

_GENERATIVE_NAMES: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Suffixes of classes that generate text, by the convention of transformers."""


class ServedStatus(StrEnum):
    """The support of a model class in a vLLM release."""

    SERVED = "served"
    REMOVED = "removed"
    PLUGIN = "plugin"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, config=STRICT)
class Architectures:
    """Model classes (`architectures` of config.json) by their support in vLLM.

    `removed` gives the last release that served a class, `plugins` the plugin that serves it now,
    `unsized` the reason why Tonnage cannot calculate its memory. The code of transformers serves
    `transformers_code`. `text_only` are language models of multimodal families, without encoders.
    """

    served: frozenset[str]
    no_pipeline: frozenset[str]
    pooling: frozenset[str]
    draft: frozenset[str]
    removed: Mapping[str, str]
    plugins: Mapping[str, str]
    unsized: Mapping[str, str]
    transformers_code: frozenset[str]
    text_only: frozenset[str]
    families: Families

    def known(self, name: str) -> bool:
        """Whether some vLLM release that the catalogue covers served the class."""
        return name in self.served or name in self.removed or name in self.plugins

    def runs_transformers_code(self, name: str) -> bool:
        """Whether vLLM has no code for the class and runs that of transformers."""
        return name in self.transformers_code or not self.known(name)

    def status(self, name: str, version: str) -> ServedStatus:
        """The support of this class in that release."""
        last_release = self.removed.get(name)
        if last_release is not None and parse_version(version) <= parse_version(last_release):
            return ServedStatus.SERVED
        if last_release is not None and name not in self.transformers_code:
            return ServedStatus.REMOVED
        if name in self.plugins:
            return ServedStatus.PLUGIN
        return ServedStatus.SERVED if name in self.served else ServedStatus.UNKNOWN

    def unplannable(self, name: str) -> str | None:
        """Why Tonnage cannot plan models of this class, None if it can."""
        if name in self.unsized:
            return f"it has {self.unsized[name]}, whose memory Tonnage cannot calculate"
        if name in self.pooling:
            return "it produces embeddings or scores, not text"
        if name in self.draft:
            return "it is a draft head for speculative decoding, never served alone"
        if not self.known(name) and not name.endswith(_GENERATIVE_NAMES):
            return "it is not a decoder-only language model"
        return None
