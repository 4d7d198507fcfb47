"""Text that is cut to the room it has, and that steers no terminal."""

from typing import Final

_ELLIPSIS: Final = "..."
_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))
}
"""All but tab and line break."""


def harmless(text: str) -> str:
    """The text with control characters written out: what others say must not steer a terminal."""
    return text.translate(_CONTROLS)


def truncate(text: str, max_bytes: int) -> str:
    """The text, cut to so many bytes of UTF-8 without tearing a character apart."""
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    return encoded[: max_bytes - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
