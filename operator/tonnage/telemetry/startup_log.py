"""Why vLLM did not start, in its own words, from the end of its container's log, and what memory
it lacked by them.

The termination message is not enough: it keeps 2 KiB, and in the memory cases vLLM prints the
cause 4 to 10 KB before its last line ("Engine core initialization failed. See root cause above").
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

MAX_WORDS: Final = 500
"""Characters of vLLM's words that are kept."""

_MAX_LINE: Final = 4096
_PREFIX: Final = re.compile(
    r"^(\(\w+ pid=\d+\) )?((ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d )?(\[[\w.]+:\d+\] )?"
)
_EXCEPTION: Final = re.compile(
    r"^([A-Za-z_][\w.]*(Error|Exception):|vllm: error:|\s+Value error,) "
)
_UNIT_BYTES: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AMOUNT: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,4})?")
"""No device has more, and more digits are none of vLLM's."""

_UNTELLING: Final = re.compile(r"root cause|validation errors? for ")


@dataclass(frozen=True, slots=True)
class LogCause:
    """The line that tells why a start failed; `reason` is None where no known rule matches."""

    reason: Reason | None
    words: str


class _Rule(ApiModel):
    reason: Reason
    words: str
    source: str
    ran_short_of: ShortfallKind | None = None
    needed: str | None = None
    available: str | None = None


def find_cause(log: str) -> LogCause | None:
    """The most telling line of a failed start's log; None when no line looks like an error."""
    lines = [_PREFIX.sub("", line[:_MAX_LINE]) for line in log.splitlines()]
    for rule, pattern in _rules():
        for line in lines:
            if pattern.search(line):
                return LogCause(rule.reason, _shorten(line))
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    telling = [line for line in exceptions if not _UNTELLING.search(line)] or exceptions
    return LogCause(None, _shorten(telling[-1])) if telling else None


def read_shortfall(words: str) -> MemoryShortfall | None:
    """What a start lacked by vLLM's words, as `find_cause` gives them; None where that was not
    memory of a GPU. An amount that is none (too long, negative) is not known."""
    for rule, pattern in _rules():
        if pattern.search(words):
            kind = rule.ran_short_of
            needed, available = (_read_bytes(side, words) for side in (rule.needed, rule.available))
            return MemoryShortfall(kind, needed, available) if kind else None
    return None


def _read_bytes(pattern: str | None, words: str) -> int | None:
    found = re.search(pattern, words) if pattern else None
    if found is None or not _AMOUNT.fullmatch(found["amount"]):
        return None
    return round(float(found["amount"]) * _UNIT_BYTES[found["unit"]])


@lru_cache(maxsize=1)
def _rules() -> tuple[tuple[_Rule, re.Pattern[str]], ...]:
    rules = TypeAdapter(list[_Rule]).validate_python(read_data_file("failures.yaml"))
    return tuple((rule, re.compile(rule.words)) for rule in rules)


def _shorten(line: str) -> str:
    words = " ".join(line.split()).removeprefix("Value error, ")
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 3] + "..."
