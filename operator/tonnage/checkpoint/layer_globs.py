"""Shell patterns of layers' names, matched all at once."""

import re
from collections.abc import Iterator
from fnmatch import translate
from typing import Final

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.regex_globs import MAX_GLOBS

_MAX_GLOBS: Final = 2 * MAX_GLOBS


class LayerGlobs:
    """Shell patterns, each of which stands for what it matches and for all of its parts."""

    def __init__(self) -> None:
        self._globs: list[str] = []
        self._expression: re.Pattern[str] | None = None

    def __len__(self) -> int:
        return len(self._globs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._globs)

    def add(self, glob: str) -> None:
        """Take one more. Raises CheckpointError for more than any checkpoint has."""
        self._globs.append(glob)
        self._expression = None
        if len(self._globs) > _MAX_GLOBS:
            raise CheckpointError(
                f"quantization_config has more than {_MAX_GLOBS} patterns for one layer"
            )

    def match(self, name: str) -> bool:
        """Whether one of them matches a run of the dotted parts of a name."""
        if not self._globs:
            return False
        if self._expression is None:
            # The dots at both ends let one pattern stand for every run of parts it may match;
            # what fnmatch makes of a pattern is safe to run.
            translated = (translate(f"*.{glob}.*") for glob in self._globs)
            self._expression = re.compile("|".join(translated))
        return self._expression.match(f".{name}.") is not None
