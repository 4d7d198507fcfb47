"""Match many shell patterns against the names of layers with one expression."""

import re
from collections.abc import Iterator
from fnmatch import translate
from typing import Final

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.quantization.regex_globs import MAX_GLOBS

_MAX_GLOBS: Final = 2 * MAX_GLOBS


class LayerGlobs:
    """Shell patterns; each matches a module and all modules inside it."""

    def __init__(self) -> None:
        self._globs: list[str] = []
        self._expression: re.Pattern[str] | None = None

    def __len__(self) -> int:
        return len(self._globs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._globs)

    def add(self, glob: str) -> None:
        """Add a pattern. Raises CheckpointError for too many patterns."""
        self._globs.append(glob)
        self._expression = None
        if len(self._globs) > _MAX_GLOBS:
            raise CheckpointError(
                f"quantization_config has more than {_MAX_GLOBS} patterns for one layer"
            )

    def match(self, name: str) -> bool:
        """Return whether a pattern matches consecutive dotted parts of a name."""
        if not self._globs:
            return False
        if self._expression is None:
            # The dots at both ends let a pattern match any consecutive parts; fnmatch's
            # translations take linear time.
            translated_globs = (translate(f"*.{glob}.*") for glob in self._globs)
            self._expression = re.compile("|".join(translated_globs))
        return self._expression.match(f".{name}.") is not None
