"""What processes and the machine use, as Linux counts it."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SLICE_SECONDS: Final = 10.0

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process since its start, of all its threads, in seconds."""
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    # The second field is the command in brackets and may hold spaces and brackets itself.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def machine_cpu_seconds() -> float:
    """CPU time of the machine since its boot that was neither idle nor waiting for disks, of all
    cores, in seconds."""
    (total, *_) = Path("/proc/stat").read_text("utf-8").splitlines()
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, total.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def peak_rss_bytes(pid: int) -> int:
    """The most memory that a process has had resident at once."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no VmHWM")


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU seconds that processes, by name, and the whole machine used within `seconds` of the
    clock."""

    seconds: float
    by_process: Mapping[str, float]
    machine: float

    @property
    def measured(self) -> float:
        """CPU seconds of all measured processes; the rest of the machine's is that of others."""
        return sum(self.by_process.values())

    @property
    def machine_share(self) -> float:
        """Share of all cores of the machine that were busy: near 1 the machine is the limit."""
        return self.machine / self.seconds / (os.cpu_count() or 1)


class CpuMeter:
    """Measures these processes from its making on."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._started = time.monotonic()
        self._machine = machine_cpu_seconds()
        self._before = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def read(self) -> CpuUse:
        """What was used until now."""
        by_process = {
            name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()
        }
        machine = machine_cpu_seconds() - self._machine
        return CpuUse(time.monotonic() - self._started, by_process, machine)


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """CPU of one process over a stretch of time, in percent of one core. `median_percent` is the
    median of its slices of ten seconds: what happens now and then does not change it."""

    seconds: float
    percent: float
    median_percent: float


async def watch_cpu(pid: int, seconds: float) -> ProcessUse:
    """What a process uses from now on, for so long."""
    began, before = time.monotonic(), cpu_seconds(pid)
    moments = [(began, before)]
    while (left := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(SLICE_SECONDS, left))
        moments.append((time.monotonic(), cpu_seconds(pid)))
    (ended, after), slices = moments[-1], itertools.pairwise(moments)
    percents = [100 * (cpu - cpu0) / (at - at0) for (at0, cpu0), (at, cpu) in slices]
    percent = 100 * (after - before) / (ended - began)
    return ProcessUse(ended - began, percent, statistics.median(percents))
