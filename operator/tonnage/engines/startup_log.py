"""What an engine prints while it starts and when that fails, and what the lines mean."""

import re
from dataclasses import dataclass

from pydantic import TypeAdapter

from tonnage.api.conditions import Reason, StartPhase
from tonnage.api.schema import ApiModel
from tonnage.catalog.data_files import read_data_file
from tonnage.placement.adjustments import ShortfallKind


class FailureRule(ApiModel):
    """The meaning of a line; the head of the data file explains the fields."""

    reason: Reason
    words: str
    source: str
    ran_short_of: ShortfallKind | None = None
    needed: str | None = None
    available: str | None = None


class PhaseRule(ApiModel):
    """The phase that a line begins; the head of the data file explains the fields."""

    phase: StartPhase
    words: str
    source: str


@dataclass(frozen=True, slots=True)
class StartupLog:
    """How to read the log of a start.

    The first of the `phases` that matches a line begins with it. Of a failed start, `prefix` is
    what the logger writes before a message. The first of the `rules` that matches any line names
    the cause; without one it is the last line that matches `error`, but for those that only point
    to another line (`pointer`).
    """

    prefix: re.Pattern[str]
    error: re.Pattern[str]
    pointer: re.Pattern[str] | None = None
    rules: tuple[tuple[FailureRule, re.Pattern[str]], ...] = ()
    phases: tuple[tuple[StartPhase, re.Pattern[str]], ...] = ()


def read_failure_rules(file: str) -> tuple[tuple[FailureRule, re.Pattern[str]], ...]:
    """The rules of a data file. A pydantic.ValidationError is a bug of the package."""
    rules = TypeAdapter(list[FailureRule]).validate_python(read_data_file(file))
    return tuple((rule, re.compile(rule.words)) for rule in rules)


def read_phases(file: str) -> tuple[tuple[StartPhase, re.Pattern[str]], ...]:
    """The phases of a data file. A pydantic.ValidationError is a bug of the package."""
    rules = TypeAdapter(list[PhaseRule]).validate_python(read_data_file(file))
    return tuple((rule.phase, re.compile(rule.words)) for rule in rules)
