"""JSON as shallow as Python can hold it.

Whoever may create an InferenceDeployment may nest what stands in `inline.config` 10,000 deep, which
is as deep as an API server reads. Python gives up long before, with an error for the whole answer:
for a list of all objects, and for the stream that a watch is.
"""

import re
from typing import Final

MAX_DEPTH: Final = 200
"""Deepest value that is kept; a spec that is deeper than half of it is refused all the same."""

_SIGN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{}]', re.DOTALL)
"""A text or a bracket. A text that does not end takes the rest: to try it again from each of its
quotes would take quadratic time."""
_OPENING: Final = frozenset("[{")
_CLOSING: Final = frozenset("]}")
_NO_SIGNS: Final = bytes(code for code in range(256) if code not in b'[]{}"')
_ONE_SORT: Final = bytes.maketrans(b"{}", b"[]")


def cut_deep(text: str) -> str:
    """The JSON with null for each list and object that lies deeper than MAX_DEPTH."""
    if not _is_deep(text):
        return text
    kept, begin, depth = [], 0, 0
    for sign in _SIGN.finditer(text):
        if sign[0] in _OPENING:
            depth += 1
            if depth == MAX_DEPTH + 1:
                kept += [text[begin : sign.start()], "null"]
        elif sign[0] in _CLOSING:
            if depth == MAX_DEPTH + 1:
                begin = sign.end()
            depth -= 1
    return "".join([*kept, text[begin:]]) if depth <= MAX_DEPTH else text


def _is_deep(text: str) -> bool:
    """Whether to look closer. Lists of all objects come here: a step takes away all innermost
    brackets at once, which is ten times as fast as to look at each."""
    body = _without_escapes(text.encode(errors="replace"))
    signs = body.translate(_ONE_SORT, _NO_SIGNS).replace(b'""', b"")
    signs = b"".join(signs.split(b'"')[::2])  # what stands between two quotes is text
    for _ in range(MAX_DEPTH):
        fewer = signs.replace(b"[]", b"")
        if len(fewer) == len(signs):
            break
        signs = fewer
    return bool(signs)


def _without_escapes(body: bytes) -> bytes:
    """The JSON without the escapes that matter to where its texts end."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")
