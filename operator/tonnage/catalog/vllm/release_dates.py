"""Release dates of vLLM: a log has the date more often than the version."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from tonnage.catalog.data_files import Entry, read_data_file


class ReleasesFile(Entry):
    """releases.yaml."""

    compiled: date
    source: str
    released: Mapping[str, date]


@dataclass(frozen=True, slots=True)
class ReleaseDates:
    """Every vLLM release with its date, oldest first."""

    days: tuple[tuple[date, str], ...]

    def newest_on(self, day: date) -> str | None:
        """The newest release on or before that day, None before the first."""
        index = bisect_right(self.days, day, key=lambda entry: entry[0])
        return self.days[index - 1][1] if index else None

    def first_from(self, day: date) -> str | None:
        """The first release on or after that day, which contains a build of main of that day."""
        return next((version for released, version in self.days if released >= day), None)


@lru_cache(maxsize=1)
def load_release_dates() -> ReleaseDates:
    """Loads this package's release dates once.

    Raises pydantic.ValidationError for an invalid data file.
    """
    released = ReleasesFile.model_validate(read_data_file("releases.yaml")).released
    days = sorted((day, version) for version, day in released.items())
    return ReleaseDates(tuple(days))
