"""Texts of a given size that take the most memory or time to parse, of those that are known."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.foreign.hostile_values import WHOLE
from tonnage.engines.registry import engine_named

_OF_ALL_SIZES = (
    *("ten million of one letter", "a text of ten million", "a key of ten million"),
    *("brackets", "braces", "dashes", "digits", "a bomb of aliases", "merges", "many documents"),
)
"""Of the whole texts those that could be longer."""

MANY_DIGITS = b"9" * 4_300
"""As many as Python reads; one more is refused."""


def worst_texts(size: int) -> Iterator[tuple[str, bytes]]:
    """Each with its name, none of them longer than so many bytes."""
    for name in _OF_ALL_SIZES:
        yield name, WHOLE[name][:size]
    yield from dense_values(size)
    for letters in (12, 60):
        yield f"keys of {letters} letters", _object_of_keys(size, letters)
    yield "lines of two letters", b"- a\n" * (size // 4)
    metric = engine_named("vllm").cache_metric.name.encode()
    yield "a line of metrics", metric + b"{" + b'a="\\n",' * (size // 7 - 4) + b"} 1"
    for name, length in LENGTHS.items():
        yield name, length.to_bytes(8, "little") + b'{"a":'


def dense_values(size: int) -> Iterator[tuple[str, bytes]]:
    """JSON of very many values, of the kinds that take most memory for a byte of text."""
    yield "empty lists", _list_of(b"[]", size)
    yield "objects of one key", _list_of(b'{"a":1}', size)
    yield "fractions", _list_of(b"1.5", size)
    yield "no numbers", _list_of(b"NaN", size)
    yield "huge integers", _list_of(MANY_DIGITS, size)
    yield "wide characters", b'["' + "\N{GRINNING FACE}".encode() * (size // 4 - 1) + b'"]'
    yield "keys of 6 letters", _object_of_keys(size, 6)


LENGTHS = {
    "a header of 100 MB that is not there": 100_000_000,
    "a header as long as 64 bits tell": 2**64 - 1,
    "a header of nothing": 0,
}
"""What the first eight bytes of a safetensors file may say of the header behind them."""


def _list_of(value: bytes, size: int) -> bytes:
    return b"[" + (value + b",") * ((size - len(value) - 2) // (len(value) + 1)) + value + b"]"


def _object_of_keys(size: int, letters: int) -> bytes:
    entry = b'"%%0%dx":1' % letters
    return b"{" + b",".join(map(entry.__mod__, range((size - 1) // (letters + 5)))) + b"}"
