"""Every regular expression takes linear time for any input.

Python's engine tries again from each character on, and holds the interpreter's lock meanwhile: an
expression that is quadratic makes the whole operator stand still. What nearly matches, again and
again, is the worst for it; so each is tried with texts of its own making.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import tonnage
from tonnage.catalog.data_files import read_data_file

LONG = 65_536
"""Characters: the end of a log, or of a name in a header."""
LINE = 4_096
"""Characters of a line of a log, which is cut to so many before the catalogue's rules see it."""
TIMES_LONGER = 4
MOST_GROWTH = 9
"""Times as long for a text that is four times as long: 4 in linear time, 16 in quadratic time."""
MEASURABLE_SECONDS = 0.02
"""Of the processor. A shorter time is that of a linear expression, and too short to compare."""
CLEAR_SECONDS = 0.5
"""Noise does not matter to a time that is longer."""
COMPARISONS = 5
"""A busy machine makes a shorter time longer for a while, seldom again and again."""
ESCAPED_QUOTE = '\\"'
"""Again and again, a text that seems to begin at each of its quotes and never ends."""

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""A text that takes quadratic time takes too long to search for a shorter one."""

SHORT_ONLY = {
    "api.parse._DURATION_PART": "a duration that has passed the schema, of 32 characters at most",
    "cli.fit.vllm.release._NUMBERS": "the name of an image, of 512 characters at most",
    "telemetry.startup_log._EXCEPTION": "a line of a log, of 4096 characters at most",
}
"""Expressions that are never given more."""

IN_A_LIST = {
    "checkpoint.hub.reader._PICKLES": {"fullmatch"},
    "cli.commands.inspect._IMAGE": {"fullmatch"},
    "cli.commands.inspect._NAMESPACE": {"fullmatch"},
    "engines.sglang.startup_log._ERROR": {"match"},
    "engines.sglang.startup_log._POINTER": {"search"},
    "engines.sglang.startup_log._PREFIX": {"sub"},
    "engines.vllm.startup_log._ERROR": {"match"},
    "engines.vllm.startup_log._POINTER": {"search"},
    "engines.vllm.startup_log._PREFIX": {"sub"},
    "fit.weights.correction._PART_NAMES": {"search"},
}
"""How expressions are used that have no name of their own."""


def expressions() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Those of all modules, and those of the catalogue that are run on logs."""
    for module in pkgutil.walk_packages(tonnage.__path__, "tonnage."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            listed = value if isinstance(value, tuple) else (value,)
            flat = [part for one in listed for part in (one if isinstance(one, tuple) else (one,))]
            for number, expression in enumerate(one for one in flat if isinstance(one, re.Pattern)):
                if isinstance(expression.pattern, str):
                    where = f"{module.name.removeprefix('tonnage.')}.{name}"
                    yield (f"{where}[{number}]" if number else where), expression
    for number, rule in enumerate(read_data_file("failures.yaml")):
        for field in ("words", "needed", "available"):
            if field in rule:
                yield f"failures.yaml[{number}].{field}", re.compile(rule[field])


def uses_of(name: str) -> set[str]:
    """The methods by which it is asked; an expression that has to match from the first character on
    is not tried again from each other."""
    module, _, variable = name.partition("[")[0].rpartition(".")
    if name.startswith("failures.yaml"):
        return {"search"}
    if name.partition("[")[0] in IN_A_LIST:
        return IN_A_LIST[name.partition("[")[0]]
    source = Path("operator/tonnage", *module.split(".")).with_suffix(".py").read_text("utf-8")
    return set(re.findall(rf"\b{variable}\.(\w+)\(", source))


EXPRESSIONS = {name: expression for name, expression in expressions() if name not in SHORT_ONLY}


def is_linear(seconds: Callable[[str], float], text: str, shorter: str) -> bool:
    """By the shortest times: what else the machine does makes them longer only."""
    long = short = inf
    for _ in range(COMPARISONS):
        long = min(long, seconds(text))
        if long < MEASURABLE_SECONDS:
            return True
        short = min(short, seconds(shorter))
        if long < MOST_GROWTH * short:
            return True
        if long >= CLEAR_SECONDS:
            break
    return False


def test_the_modules_have_expressions() -> None:
    assert len(EXPRESSIONS) > 50
    assert "checkpoint.safetensors.formats._IN_LAYER" in EXPRESSIONS


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_takes_linear_time(name: str) -> None:
    expression, uses = EXPRESSIONS[name], uses_of(name)
    length = LINE if name.startswith("failures.yaml") else LONG
    assert uses, "it is not used, or it belongs into IN_A_LIST"
    tries_each = not uses <= {"match", "fullmatch"}

    def seconds(text: str) -> float:
        taken = []
        for _ in range(3):
            started = time.process_time()
            if tries_each:
                expression.search(text)
            expression.fullmatch(text)
            taken.append(time.process_time() - started)
            if not MEASURABLE_SECONDS < taken[-1] < CLEAR_SECONDS:
                break
        return min(taken)

    @example(ESCAPED_QUOTE, 0, "")
    @settings(max_examples=12, deadline=None, phases=UNSHRUNK)
    @given(
        st.from_regex(expression, fullmatch="(?<" not in expression.pattern),
        st.integers(0, 8),
        st.sampled_from(["", ".", "!", "\n", " ", '"', "a"]),
    )
    def near_misses(match: str, cut: int, end: str) -> None:
        piece = match[: max(1, len(match) - cut)] or "a"
        text = (piece * (length // len(piece) + 1))[:length]
        shorter = text[: length // TIMES_LONGER]
        assert is_linear(seconds, text + end, shorter + end), f"{piece!r} again and again"

    near_misses()
