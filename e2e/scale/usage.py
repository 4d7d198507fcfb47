"""What a process has used of the machine, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

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
