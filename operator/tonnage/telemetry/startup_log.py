"""Why an engine failed to start, in its own words, from the end of its container's log, and the GPU
memory that it lacked.

The termination message is not enough: it keeps 2 KiB, and for memory errors vLLM prints the cause
4 to 10 KB before its last line ("Engine core initialization failed. See root cause above").
"""

import re
from dataclasses import dataclass
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.engines.registry import ENGINE_KINDS, engine_named
from tonnage.placement.adjustments import MemoryShortfall

MAX_CHARACTERS: Final = 500
"""Longest excerpt of a log that is kept, in characters."""

_MAX_LINE: Final = 4096
_UNIT_BYTES: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AMOUNT: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,4})?")
"""No device has more memory, and no engine prints more digits."""


@dataclass(frozen=True, slots=True)
class LogCause:
    """The line with the cause of a failed start; `reason` is None if no rule matches."""

    reason: Reason | None
    message: str


def find_cause(log: str, engine: str = "") -> LogCause | None:
    """Find the line with the cause in the log of a failed start; None if no line is an error.

    `engine` is the name of the engine, "" where it is unknown.
    """
    words = engine_named(engine).startup_log
    lines = [words.prefix.sub("", line[:_MAX_LINE]) for line in log.splitlines()]
    for rule, pattern in words.rules:
        for line in lines:
            if pattern.search(line):
                return LogCause(rule.reason, _shorten(line))
    errors = [line for line in lines if words.error.match(line)]
    pointer = words.pointer
    causes = [line for line in errors if pointer is None or not pointer.search(line)] or errors
    return LogCause(None, _shorten(causes[-1])) if causes else None


def read_shortfall(words: str) -> MemoryShortfall | None:
    """Read the GPU memory that a start lacked from the words that `find_cause` returns, of any
    engine.

    None if it lacked none. An invalid amount (too long, negative) is unknown.
    """
    for engine in ENGINE_KINDS.values():
        for rule, pattern in engine.startup_log.rules:
            if pattern.search(words):
                kind = rule.ran_short_of
                sides = (rule.needed, rule.available)
                needed, available = (_read_bytes(side, words) for side in sides)
                return MemoryShortfall(kind, needed, available) if kind else None
    return None


def _read_bytes(pattern: str | None, words: str) -> int | None:
    match = re.search(pattern, words) if pattern else None
    if match is None or not _AMOUNT.fullmatch(match["amount"]):
        return None
    return round(float(match["amount"]) * _UNIT_BYTES[match["unit"]])


def _shorten(line: str) -> str:
    words = " ".join(line.split()).removeprefix("Value error, ")
    return words if len(words) <= MAX_CHARACTERS else words[: MAX_CHARACTERS - 3] + "..."
