"""What a process has used of the machine, as Linux counts it."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SLICE_SECONDS: Final = 10.0

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Time on a processor since its start, of all its threads."""
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    # The second field is the command in brackets and may hold spaces and brackets itself.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_rss_bytes(pid: int) -> int:
    """The most memory that it has held at once."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status tells no VmHWM")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a stretch of time, in percent of one core; `median_percent` is that of its slices of ten
    seconds, which what happens now and then does not change."""

    seconds: float
    percent: float
    median_percent: float


async def watch_cpu(pid: int, seconds: float) -> Usage:
    """What a process takes from now on, for so long."""
    began, before = time.monotonic(), cpu_seconds(pid)
    moments = [(began, before)]
    while (left := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(SLICE_SECONDS, left))
        moments.append((time.monotonic(), cpu_seconds(pid)))
    (ended, after), slices = moments[-1], itertools.pairwise(moments)
    percents = [100 * (cpu - cpu0) / (at - at0) for (at0, cpu0), (at, cpu) in slices]
    percent = 100 * (after - before) / (ended - began)
    return Usage(ended - began, percent, statistics.median(percents))
