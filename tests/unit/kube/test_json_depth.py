"""limit_depth replaces values nested deeper than Python can parse, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tonnage.kube.json_depth import MAX_DEPTH, limit_depth
from tonnage.manager.kopf_responses import _ShallowLines


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
            id="brackets in strings",
        ),
        pytest.param("[" * 10_000, "[" * 10_000, id="no JSON"),
        pytest.param("]" * 500 + "[" * 500, "]" * 500 + "[" * 500, id="no JSON either"),
    ],
)
def test_a_value_that_is_too_deep_becomes_null(text: str, want: str) -> None:
    assert limit_depth(text) == want


@given(
    st.recursive(
        st.none() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    ),
    st.integers(0, 250),
)
def test_other_values_do_not_change(value: Any, levels: int) -> None:
    text = "[" * levels + json.dumps([value, [[]] * 200]) + "]" * levels
    cut = json.loads(limit_depth(text))
    if levels <= MAX_DEPTH - 100:
        assert json.dumps(cut) == json.dumps(json.loads(text))


_TEXTS = st.lists(st.text('[]{}"\\ä', max_size=4), max_size=4)


@given(_TEXTS, _TEXTS, st.integers(MAX_DEPTH - 2, MAX_DEPTH + 2), st.booleans())
@example(["]"], ["["], MAX_DEPTH + 1, False)
@example(['"'], ['"'], MAX_DEPTH + 1, False)
def test_brackets_quotes_and_escapes_in_strings_hide_no_depth(
    before: list[str], after: list[str], levels: int, is_object: bool
) -> None:
    """Strings at each level and on both sides could make the JSON seem less deep."""
    deep: Any = None
    for _ in range(levels):
        if is_object:
            deep = {"before": before, "deeper": deep, "after": after}
        else:
            deep = [*before, deep, *after]
    text = json.dumps(deep, ensure_ascii=False)
    depth = levels + is_object  # the innermost object holds the lists of strings
    assert (limit_depth(text) == text) == (depth <= MAX_DEPTH)


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_each_line_of_a_watch_is_cut_whatever_the_size_of_the_chunks(size: int) -> None:
    lines = [f'{{"a": {nested(depth)}, "b": "ä"}}' for depth in (1, 5_000, 2)]
    text = ("\n".join(lines) + "\n" + '{"rest": 1}').encode()

    class Content:
        async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
            for start in range(0, len(text), size):
                yield text[start : start + size]

    async def read() -> str:
        content = _ShallowLines(Content())  # type: ignore[arg-type] # it calls no other method
        return b"".join([chunk async for chunk in content.iter_chunked(size)]).decode()

    objects = [json.loads(line) for line in asyncio.run(read()).splitlines()]
    assert [each.get("b") for each in objects] == ["ä", "ä", "ä", None]
    assert objects[0] == {"a": [], "b": "ä"}
