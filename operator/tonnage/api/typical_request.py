"""The size of a typical request where the user states none."""

from typing import Final

TYPICAL_INPUT_TOKENS: Final = 1000
TYPICAL_OUTPUT_TOKENS: Final = 200
