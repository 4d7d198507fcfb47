"""Model classes: what vLLM does with them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pydantic.dataclasses import dataclass

from tonnage.catalog.engine import parse_version
from tonnage.catalog.families import Families
from tonnage.catalog.model import STRICT

_GENERATIVE_NAMES: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of the names of classes that generate text, by transformers' convention."""


class ServedStatus(StrEnum):
    """What a vLLM release makes of a model class."""

    SERVED = "served"
    REMOVED = "removed"
    PLUGIN = "plugin"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, config=STRICT)
class Architectures:
    """Model classes (`architectures` of config.json) by what vLLM does with them.

    `removed` gives the last release that served a class, `plugins` what serves it now, `unsized`
    the reason why its memory cannot be calculated. `transformers_code` are served by the code of
    transformers, `text_only` are the language models of multimodal families by themselves.
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
        """Whether some vLLM release has served the class with code that was read."""
        return name in self.served or name in self.removed or name in self.plugins

    def runs_transformers_code(self, name: str) -> bool:
        """Whether vLLM runs the code of transformers, having none of its own."""
        return name in self.transformers_code or not self.known(name)

    def status(self, name: str, version: str) -> ServedStatus:
        """What that release makes of models of this class."""
        last = self.removed.get(name)
        if last is not None and parse_version(version) <= parse_version(last):
            return ServedStatus.SERVED
        if last is not None and name not in self.transformers_code:
            return ServedStatus.REMOVED
        if name in self.plugins:
            return ServedStatus.PLUGIN
        return ServedStatus.SERVED if name in self.served else ServedStatus.UNKNOWN

    def unplannable(self, name: str) -> str | None:
        """Why no model of this class can be planned, None when it can."""
        if name in self.unsized:
            return f"it has {self.unsized[name]}, whose memory Tonnage cannot calculate"
        if name in self.pooling:
            return "it produces embeddings or scores, not text"
        if name in self.draft:
            return "it is a draft head for speculative decoding, never served alone"
        if not self.known(name) and not name.endswith(_GENERATIVE_NAMES):
            return "it is not a decoder-only language model"
        return None
