"""Resolves the vLLM release from a version, an image, or the date of a log.

`0.26.1rc1.dev156+g0eec856cc`, `0.11.0 (assumed)`, `vllm/vllm-openai:v0.22.0`, `main, 2026-08-26`.
"""

import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from tonnage.catalog.vllm.release_dates import ReleaseDates, load_release_dates

_NUMBERS: Final = re.compile(r"(?:\S{1,200}:)?v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})*)(?![\dx]|\.x|-\d)")
"""A version at the start of the text or in an image tag; `0.2x` and dates do not match."""

_DAY: Final = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")
_MAIN: Final = re.compile(r"\bmain\b")


@dataclass(frozen=True, slots=True)
class ResolvedRelease:
    """A release, and a note on how it was found if the text does not name it."""

    version: str
    note: str | None = None


def resolve_release(text: str) -> ResolvedRelease | None:
    """Resolve the release of a text; None if it names neither a version nor a date.

    A version at the start takes precedence over a date. A date resolves to the newest release of
    that day, or for a build of main to the first one from that day on.
    """
    named = _NUMBERS.match(text.strip())
    if named is not None:
        return ResolvedRelease(named[1])
    version = _resolve_date(text, load_release_dates())
    if version is None:
        return None
    return ResolvedRelease(version, f"vLLM {text!r} is taken for {version}, by its day")


def _resolve_date(text: str, dates: ReleaseDates) -> str | None:
    match = _DAY.search(text)
    if match is None:
        return None
    year, month, day = match.groups(default="01")
    try:
        when = date(int(year), int(month), int(day))
    except ValueError:
        return None
    if _MAIN.search(text):
        return dates.first_from(when) or dates.newest_on(when)
    return dates.newest_on(when)
