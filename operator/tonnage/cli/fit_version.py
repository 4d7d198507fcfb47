"""The vLLM release meant by what people write down: a version, an image, a log's day.

`0.26.1rc1.dev156+g0eec856cc`, `0.11.0 (assumed)`, `vllm/vllm-openai:v0.22.0`, `main, 2026-08-26`.
"""

import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from tonnage.catalog.release_dates import ReleaseDates, load_release_dates

_NUMBERS: Final = re.compile(r"(?:\S{1,200}:)?v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})*)(?![\dx]|\.x|-\d)")
"""A version at the start of the text or behind an image's name; `0.2x` and a day are none."""

_DAY: Final = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")
_MAIN: Final = re.compile(r"\bmain\b")


@dataclass(frozen=True, slots=True)
class MeantRelease:
    """A release, and how it was found where the text does not name it."""

    version: str
    note: str | None = None


def find_release(text: str) -> MeantRelease | None:
    """The release that the text means, None where it means none.

    A version in front counts; else a day, for which the newest release of that day is taken, or for
    a build of main the first one after it.
    """
    named = _NUMBERS.match(text.strip())
    if named is not None:
        return MeantRelease(named[1])
    found = _on_day(text, load_release_dates())
    if found is None:
        return None
    return MeantRelease(found, f"vLLM {text!r} is taken for {found}, by its day")


def _on_day(text: str, dates: ReleaseDates) -> str | None:
    written = _DAY.search(text)
    if written is None:
        return None
    year, month, day = written.groups(default="01")
    try:
        when = date(int(year), int(month), int(day))
    except ValueError:
        return None
    if _MAIN.search(text):
        return dates.first_from(when) or dates.newest_on(when)
    return dates.newest_on(when)
