"""Why vLLM failed to start, in vLLM's words, from the end of its container's log, and the GPU
memory that it lacked.

The termination message is not enough: it keeps 2 KiB, and for memory errors vLLM prints the cause
4 to 10 KB before its last line ("Engine core initialization failed. See root cause above").
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pydantic import TypeAdapter

from tonnage.api.conditions import Reason
from tonnage.api.schema import ApiModel
from tonnage.catalog.data_files import read_data_file
from tonnage.placement.adjustments import MemoryShortfall, ShortfallKind

MAX_CHARACTERS: Final = 500
"""Longest excerpt of vLLM's log that is kept, in characters."""

_MAX_LINE: Final = 4096
_PREFIX: Final = re.compile(
    r"^(\(\w+ pid=\d+\) )?((ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d )?(\[[\w.]+:\d+\] )?"
)
_EXCEPTION: Final = re.compile(
    r"^([A-Za-z_][\w.]*(Error|Exception):|vllm: error:|\s+Value error,) "
)
_UNIT_BYTES: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AMOUNT: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,4})?")
"""No device has more memory, and vLLM prints no more digits."""

_POINTER: Final = re.compile(r"root cause|validation errors? for ")


@dataclass(frozen=True, slots=True)
class LogCause:
    """The line with the cause of a failed start; `reason` is None if no rule matches."""

    reason: Reason | None
    message: str


class _Rule(ApiModel):
    reason: Reason
    words: str
    source: str
    ran_short_of: ShortfallKind | None = None
    needed: str | None = None
    available: str | None = None


def find_cause(log: str) -> LogCause | None:
    """Find the line with the cause in the log of a failed start; None if no line is an error."""
    lines = [_PREFIX.sub("", line[:_MAX_LINE]) for line in log.splitlines()]
    for rule, pattern in _rules():
        for line in lines:
            if pattern.search(line):
                return LogCause(rule.reason, _shorten(line))
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    causes = [line for line in exceptions if not _POINTER.search(line)] or exceptions
    return LogCause(None, _shorten(causes[-1])) if causes else None


def read_shortfall(words: str) -> MemoryShortfall | None:
    """Read the GPU memory that a start lacked from the words that `find_cause` returns.

    None if it lacked none. An invalid amount (too long, negative) is unknown.
    """
    for rule, pattern in _rules():
        if pattern.search(words):
            kind = rule.ran_short_of
            needed, available = (_read_bytes(side, words) for side in (rule.needed, rule.available))
            return MemoryShortfall(kind, needed, available) if kind else None
    return None


def _read_bytes(pattern: str | None, words: str) -> int | None:
    match = re.search(pattern, words) if pattern else None
    if match is None or not _AMOUNT.fullmatch(match["amount"]):
        return None
    return round(float(match["amount"]) * _UNIT_BYTES[match["unit"]])


@lru_cache(maxsize=1)
def _rules() -> tuple[tuple[_Rule, re.Pattern[str]], ...]:
    rules = TypeAdapter(list[_Rule]).validate_python(read_data_file("failures.yaml"))
    return tuple((rule, re.compile(rule.words)) for rule in rules)


def _shorten(line: str) -> str:
    words = " ".join(line.split()).removeprefix("Value error, ")
    return words if len(words) <= MAX_CHARACTERS else words[: MAX_CHARACTERS - 3] + "..."
