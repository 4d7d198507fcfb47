"""When vLLM was released: a log tells the day more often than the version."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.schema import Entry


class ReleasesFile(Entry):
    """releases.yaml."""

    compiled: date
    source: str
    released: Mapping[str, date]


@dataclass(frozen=True, slots=True)
class ReleaseDates:
    """Every vLLM release with the day it came out, oldest first."""

    days: tuple[tuple[date, str], ...]

    def newest_on(self, day: date) -> str | None:
        """The newest release that was out on that day, None before the first."""
        index = bisect_right(self.days, day, key=lambda entry: entry[0])
        return self.days[index - 1][1] if index else None

    def first_from(self, day: date) -> str | None:
        """The first release of that day or a later one: what a build of main of that day became."""
        return next((version for released, version in self.days if released >= day), None)


@lru_cache(maxsize=1)
def load_release_dates() -> ReleaseDates:
    """The days that come with this package, read once.

    Raises pydantic.ValidationError when the data file breaks its layout.
    """
    released = ReleasesFile.model_validate(read_data_file("releases.yaml")).released
    days = sorted((day, version) for version, day in released.items())
    return ReleaseDates(tuple(days))
