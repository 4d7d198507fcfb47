"""Model classes and families: what vLLM does with them, and what their configs leave unsaid."""

from collections.abc import Mapping
from typing import Final

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT

_GENERATIVE_NAMES: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


@dataclass(frozen=True, slots=True, config=STRICT)
class Families:
    """What transformers takes for granted when config.json is silent, by `model_type`.

    `tied`: embeddings double as output head. `ungated`: two MLP matrices instead of three.
    `gated`: attention's output is gated.
    `window_pattern`, `chunk_pattern`: each n-th layer attends to everything, the others to a
    window or a chunk. `window_everywhere`: every layer attends to the window where one is given.
    """

    tied: frozenset[str]
    ungated: frozenset[str]
    gated: frozenset[str]
    window_pattern: Mapping[str, int]
    window_everywhere: frozenset[str]
    chunk_pattern: Mapping[str, int]


@dataclass(frozen=True, slots=True, config=STRICT)
class Architectures:
    """Model classes (`architectures` of config.json) by what vLLM does with them.

    `removed` gives the last release that served a class, `plugins` what serves it now, `unsized`
    the reason why its memory cannot be calculated.
    """

    served: frozenset[str]
    no_pipeline: frozenset[str]
    pooling: frozenset[str]
    draft: frozenset[str]
    removed: Mapping[str, str]
    plugins: Mapping[str, str]
    unsized: Mapping[str, str]
    families: Families

    def unplannable(self, name: str) -> str | None:
        """Why no model of this class can be planned, None when it can."""
        if name in self.unsized:
            return f"it has {self.unsized[name]}, whose memory Tonnage cannot calculate"
        if name in self.pooling:
            return "it produces embeddings or scores, not text"
        if name in self.draft:
            return "it is a draft head for speculative decoding, never served alone"
        known = name in self.served or name in self.removed or name in self.plugins
        if not known and not name.endswith(
            ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
        ):
            return "it is not a decoder-only language model"
        return None
