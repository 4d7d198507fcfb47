"""Values that strangers write where a text in JSON is read, and all places they can stand in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

LONG = 10_000_000
"""Characters: ten times as many as an object of the API server may have."""

VALUES = {
    "null": "null",
    "true": "true",
    "nothing": '""',
    "an empty list": "[]",
    "an empty object": "{}",
    "zero": "0",
    "below zero": "-1",
    "a fraction": "0.5",
    "no number": "NaN",
    "no end": "Infinity",
    "beyond a float": "1e400",
    "beyond 64 bits": "18446744073709551616",
    "more digits than Python prints": "9" * 4299 + "9" * 4301,
    "as many digits as Python reads": "9" * 4300,
    "as many below zero": "-" + "9" * 4300,
    "half of a pair": '"\\ud800"',
    "half of a pair in the middle": '"a\\udfffb"',
    "a key that is half of a pair": '{"\\ud800": {"\\ud800": "\\ud800"}}',
    "a key twice": '{"a": 1, "a": 2}',
    "NUL": '"\\u0000"',
    "escapes of a terminal": '"\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\r\\n"',
    "deep": "[" * 900 + "]" * 900,
    "deep objects": '{"a":' * 400 + "1" + "}" * 400,
    "too deep": "[" * 100_000 + "]" * 100_000,
    "unclosed": "[" * 100_000,
    "a list of many": "[" + "1," * 10_000 + "1]",
    "a long text": json.dumps("x" * 100_000),
    "stars": json.dumps("*a" * 2_000),
    "dots": json.dumps("h.0." * 10_000 + "."),
    "an expression": json.dumps("re:" + "(a|a)*" * 30 + "$"),
    "a tag": "!!python/object/apply:os.system [exit 1]",
}
"""Texts, each of which stands where a value is expected; not all of them are JSON."""

WHOLE = {
    "nothing": b"",
    "spaces": b" " * 100_000,
    "a byte that is no text": b"\xff\xfe\xfd",
    "UTF-16": '{"a": "b"}'.encode("utf-16"),
    "a mark in front": b"\xef\xbb\xbf{}",
    "half of a pair": b"\xed\xa0\x80",
    "lines without end": b"\n" * 100_000,
    "ten million of one letter": b"x" * LONG,
    "a text of ten million": b'"' + b"x" * LONG + b'"',
    "a key of ten million": b'{"' + b"x" * LONG + b'": 1}',
    "brackets": b"[" * 1_000_000,
    "braces": b'{"a":' * 1_000_000,
    "dashes": b"- " * 1_000_000,
    "digits": b"9" * 1_000_000,
    "a bomb of aliases": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(
        b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % ((n + 1, n + 1, *([n] * 9)))
        for n in range(ord("a"), ord("j"))
    ),
    "a value in itself": b"&a [*a]\n",
    "merges": b"a: &a {b: c}\n" + b"d: {<<: [*a, *a, *a]}\n" * 1_000,
    "a tag": b"!!python/object/apply:os.system [exit 1]\n",
    "an alias of nothing": b"*a",
    "a tab": b"\t- a",
    "many documents": b"---\na\n" * 10_000,
}
"""Whole texts, whatever was expected."""


def places(document: Any) -> Iterator[str]:
    """The document as JSON, once for each value in it, which `%s` stands for."""
    for path in _paths(document):
        yield json.dumps(_replaced(document, path, _SLOT)).replace("%", "%%").replace(_QUOTED, "%s")


_SLOT = "-- the place --"
_QUOTED = json.dumps(_SLOT)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    for key, child in inner or (enumerate(value) if isinstance(value, list) else ()):
        yield from _paths(child, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], by: object) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], by)
    return copy
