"""JSON in the value of an annotation: compressed, because one object has 256 KiB for all of them.

Any editor of the object can write any text there, so reading is bounded.
"""

import base64
import binascii
import json
import zlib
from typing import Any, Final

from tonnage.api.text import canonical_json

MAX_PACKED_CHARS: Final = 96 * 1024
"""Longest packed text; all annotations of an object have 256 KiB (ValidateAnnotationsSize in
Kubernetes' apimachinery)."""

_MAX_JSON_BYTES: Final = 1024 * 1024
"""A pod template has some KiB, a config.json at most 100 KB, a table of tensors at most 400 KB."""


def pack(value: object) -> str | None:
    """Pack JSON data into text; None if it is too long for an annotation."""
    return pack_json(canonical_json(value))


def pack_json(text: str) -> str | None:
    """Pack data that is canonical JSON already."""
    content = text.encode()
    if len(content) > _MAX_JSON_BYTES:
        return None
    packed = base64.b64encode(zlib.compress(content, 9)).decode()
    return packed if len(packed) <= MAX_PACKED_CHARS else None


def unpack(text: str) -> Any:
    """Unpack what `pack` has packed; None for any other text."""
    content = unpack_json(text)
    try:
        return None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None


def unpack_json(text: str) -> str | None:
    """Unpack into the JSON text that `pack_json` has packed; None for any other text."""
    if len(text) > MAX_PACKED_CHARS:
        return None
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(base64.b64decode(text, validate=True), _MAX_JSON_BYTES)
        if not stream.eof or stream.unused_data:
            return None
        return content.decode()
    except (binascii.Error, zlib.error, ValueError):
        return None
