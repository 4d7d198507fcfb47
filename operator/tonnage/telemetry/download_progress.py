"""How much of a checkpoint a Job has downloaded, from the log of its program.

The program (checkpoint/hub/download.py) writes a line every few seconds. Whatever else is in the
log, and every line that cannot be true, is passed over.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_NUMBER: Final = r"[0-9]{1,18}"
_LINE: Final = re.compile(
    rf"^progress: (?P<present>{_NUMBER}) of (?P<total>{_NUMBER}) bytes,"
    rf" (?P<downloaded>{_NUMBER}) of them in (?P<seconds>[0-9]{{1,8}}) s$"
)
_MAX_LINE: Final = 256

_LONGEST: Final = timedelta(days=365)
"""Longest estimate: a longer one says nothing, and a line of another program may give one that no
timedelta holds."""


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Bytes of the files on the volume, of `total`; this attempt has downloaded `downloaded` of
    them in `elapsed`, an earlier one the others."""

    present: int
    total: int
    downloaded: int
    elapsed: timedelta

    @property
    def percent(self) -> int:
        """The share on the volume, rounded down."""
        return 100 * self.present // self.total

    @property
    def remaining(self) -> timedelta | None:
        """Time for the other bytes at the rate so far; None before there is a rate, and for more
        than a year."""
        if self.downloaded == 0 or not self.elapsed:
            return None
        times = (self.total - self.present) / self.downloaded
        return self.elapsed * times if times <= _LONGEST / self.elapsed else None


def read_download(log: str) -> DownloadProgress | None:
    """The last progress in the log; None where it has none."""
    for line in reversed(log.split("\n")):
        match = _LINE.match(line.strip("\r")) if len(line) <= _MAX_LINE else None
        if match is None:
            continue
        present, total, downloaded, seconds = map(int, match.groups())
        if 0 < total >= present >= downloaded:
            return DownloadProgress(present, total, downloaded, timedelta(seconds=seconds))
    return None
