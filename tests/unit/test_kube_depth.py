"""What is nested deeper than Python can hold is cut off, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.kube.depth import MAX_DEPTH, cut_deep
from tonnage.watch.shallow_answers import _ShallowLines


def nested(levels: int, begin: str = "[", end: str = "]") -> str:
    return begin * levels + end * levels


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(nested(MAX_DEPTH), nested(MAX_DEPTH), id="as deep as can be"),
        pytest.param(
            nested(MAX_DEPTH + 1), "[" * MAX_DEPTH + "null" + "]" * MAX_DEPTH, id="one deeper"
        ),
        pytest.param(
            f'{{"a": {nested(10_000)}, "b": 1}}',
            f'{{"a": {"[" * (MAX_DEPTH - 1)}null{"]" * (MAX_DEPTH - 1)}, "b": 1}}',
            id="as deep as an API server reads",
        ),
        pytest.param(
            "[" + "{}," * 500 + f'"{"[" * 500}"]', "[" + "{}," * 500 + f'"{"[" * 500}"]', id="wide"
        ),
        pytest.param(
            json.dumps(['\\"[' * 500, nested(300)]),
            json.dumps(['\\"[' * 500, nested(300)]),
            id="brackets in texts",
        ),
        pytest.param("[" * 10_000, "[" * 10_000, id="no JSON"),
        pytest.param("]" * 500 + "[" * 500, "]" * 500 + "[" * 500, id="none either"),
    ],
)
def test_what_is_too_deep_is_null(text: str, want: str) -> None:
    assert cut_deep(text) == want


@given(
    st.recursive(
        st.none() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    ),
    st.integers(0, 250),
)
def test_all_else_is_as_it_was(value: Any, levels: int) -> None:
    text = "[" * levels + json.dumps([value, [[]] * 200]) + "]" * levels
    cut = json.loads(cut_deep(text))
    if levels <= MAX_DEPTH - 100:
        assert json.dumps(cut) == json.dumps(json.loads(text))


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_lines_of_a_watch_are_cut_one_by_one_however_they_come(size: int) -> None:
    lines = [f'{{"a": {nested(depth)}, "b": "ä"}}' for depth in (1, 5_000, 2)]
    text = ("\n".join(lines) + "\n" + '{"rest": 1}').encode()

    class Content:
        async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
            for start in range(0, len(text), size):
                yield text[start : start + size]

    async def read() -> str:
        found = _ShallowLines(Content())  # type: ignore[arg-type] # all that is asked of it
        return b"".join([chunk async for chunk in found.iter_chunked(size)]).decode()

    told = [json.loads(line) for line in asyncio.run(read()).splitlines()]
    assert [one.get("b") for one in told] == ["ä", "ä", "ä", None]
    assert told[0] == {"a": [], "b": "ä"}
