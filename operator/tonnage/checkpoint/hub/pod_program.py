"""What the programs that pods run on a checkpoint have in common. Their texts have this file in
place of its import (`workloads.pod.weights.program`), for a pod has no package of Tonnage."""

import os
import stat
from contextlib import suppress
from pathlib import Path

NEEDS_PERSON = 3
"""Exit code where another attempt would fail like this one."""


def count_bytes(folder: Path) -> int:
    """Return the bytes that all files below a folder take, 0 without one. A file that is written in
    several places at once is longer than what is in it; file systems that do not count blocks say 0
    of them."""
    count = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a file may just have been renamed
                status = os.lstat(os.path.join(directory, name))
                if stat.S_ISREG(status.st_mode):
                    blocks = status.st_blocks * 512
                    count += min(status.st_size, blocks) if blocks else status.st_size
    return count
