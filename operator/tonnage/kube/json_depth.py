"""Limits the depth of JSON to what Python can parse.

A user who may create an InferenceDeployment may nest `inline.config` 10,000 deep, as deep as an API
server reads. Python fails long before that, and fails for the whole answer: for a list of all
objects, or for a watch.
"""

import re
from typing import Final

MAX_DEPTH: Final = 200
"""Deepest value kept; the operator refuses a spec deeper than half of it anyway."""

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{}]', re.DOTALL)
"""A string or a bracket. A string that does not end takes the rest: a match from each of its quotes
would take quadratic time."""
_OPENING: Final = frozenset("[{")
_CLOSING: Final = frozenset("]}")
_OTHER_BYTES: Final = bytes(code for code in range(256) if code not in b'[]{}"')
_BRACES_TO_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")


def limit_depth(text: str) -> str:
    """Replace each list and object deeper than MAX_DEPTH by null."""
    if not _is_deep(text):
        return text
    kept, start, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in _OPENING:
            depth += 1
            if depth == MAX_DEPTH + 1:
                kept += [text[start : token.start()], "null"]
        elif token[0] in _CLOSING:
            if depth == MAX_DEPTH + 1:
                start = token.end()
            depth -= 1
    return "".join([*kept, text[start:]]) if depth <= MAX_DEPTH else text


def _is_deep(text: str) -> bool:
    """Whether the JSON may be too deep. Lists of all objects pass here, so each step removes all
    innermost brackets at once, which is ten times as fast as a scan."""
    body = _without_escapes(text.encode(errors="replace"))
    brackets = body.translate(_BRACES_TO_BRACKETS, _OTHER_BYTES).replace(b'""', b"")
    brackets = b"".join(brackets.split(b'"')[::2])  # without those in strings
    for _ in range(MAX_DEPTH):
        fewer = brackets.replace(b"[]", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    return bool(brackets)


def _without_escapes(body: bytes) -> bytes:
    """The JSON without the escapes that could hide where a string ends."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")
