"""What is nested deeper than Python can hold is cut off, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import example, given
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


_TEXTS = st.lists(st.text('[]{}"\\ä', max_size=4), max_size=4)


@given(_TEXTS, _TEXTS, st.integers(MAX_DEPTH - 2, MAX_DEPTH + 2), st.booleans())
@example(["]"], ["["], MAX_DEPTH + 1, False)
@example(['"'], ['"'], MAX_DEPTH + 1, False)
def test_brackets_quotes_and_escapes_in_texts_hide_no_depth(
    before: list[str], after: list[str], levels: int, is_object: bool
) -> None:
    """The texts stand at each level and on both sides, where they could make it look less deep."""
    deep: Any = None
    for _ in range(levels):
        if is_object:
            deep = {"before": before, "deeper": deep, "after": after}
        else:
            deep = [*before, deep, *after]
    text = json.dumps(deep, ensure_ascii=False)
    depth = levels + is_object  # the innermost object holds the lists of texts
    assert (cut_deep(text) == text) == (depth <= MAX_DEPTH)


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
