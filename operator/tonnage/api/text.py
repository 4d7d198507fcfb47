"""Text that is cut to the room it has."""

from typing import Final

_ELLIPSIS: Final = "..."


def truncate(text: str, max_bytes: int) -> str:
    """The text, cut to so many bytes of UTF-8 without tearing a character apart."""
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    return encoded[: max_bytes - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
