"""Why vLLM did not start, in its own words, from the end of its container's log.

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

MAX_WORDS: Final = 500
"""Characters of vLLM's words that are kept."""

_MAX_LINE: Final = 4096
_PREFIX: Final = re.compile(
    r"^(\(\w+ pid=\d+\) )?((ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d )?(\[[\w.]+:\d+\] )?"
)
_EXCEPTION: Final = re.compile(
    r"^([A-Za-z_][\w.]*(Error|Exception):|vllm: error:|\s+Value error,) "
)
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


@lru_cache(maxsize=1)
def _rules() -> tuple[tuple[_Rule, re.Pattern[str]], ...]:
    rules = TypeAdapter(list[_Rule]).validate_python(read_data_file("failures.yaml"))
    return tuple((rule, re.compile(rule.words)) for rule in rules)


def _shorten(line: str) -> str:
    words = " ".join(line.split()).removeprefix("Value error, ")
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 3] + "..."
