"""Bring a checkpoint to the disk of a node before a replica needs it there.

A Job runs this file alone; the rest of Tonnage only reads its text. Its arguments are the texts of
node_disk.py and download.py, its environment variables those of node_disk.py except READY and
PAUSE.

It deletes what has expired, and no other checkpoint: two objects that prefetch to a disk that has
no space for both would download for ever. A pod that needs the space deletes what nothing uses.
"""

import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TERMINATED = 143
"""Exit code after SIGTERM: the download has not ended well."""


def load(text: str) -> Any:
    """Return node_disk.py as a module."""
    module = types.ModuleType("node_disk")
    exec(text, module.__dict__)  # noqa: S102 - the shipped text, which the Job passes
    module.choose = refuse_to_delete  # type: ignore[attr-defined] # a module made of text
    return module


class NoFreeSpaceError(Exception):
    """The checkpoint has no space next to what is on the disk."""


def refuse_to_delete(unused: Iterable[Any], sizes: object, lacking: int) -> list[Any]:
    """Return nothing to delete. Raise NoFreeSpaceError if `lacking` bytes are to become free."""
    if lacking > 0:
        raise NoFreeSpaceError(
            f"the disk of the node lacks {lacking / 2**30:.1f} GiB for the model; a prefetch"
            " deletes no other model"
        )
    return []


def end(signum: int, frame: object) -> None:
    """End on SIGTERM, which the first process of a container does not do by itself."""
    sys.exit(TERMINATED)


def bring(disk: Any, program: str) -> int:
    """Bring the checkpoint to the disk. Return the exit code of the download. Raise
    NoFreeSpaceError, OSError or the NoSpaceError of node_disk.py."""
    root, wanted = Path(os.environ["ROOT"]), disk.Kept(Path(os.environ["FOLDER"]))
    wanted.folder.parent.mkdir(parents=True, exist_ok=True)
    with disk.hold(wanted):
        disk.tidy(root, wanted, int(os.environ["TTL"]))
        if wanted.folder.exists():
            return 0
        size, capacity = int(os.environ["SIZE"]), int(os.environ["CAPACITY"])
        disk.free_space(root, wanted, size, capacity)
        command = [sys.executable, "-c", program]
        return subprocess.run(command, check=False).returncode  # noqa: S603 - shipped text


def main() -> None:
    """Bring the checkpoint, and leave one line on the cause of a failure."""
    signal.signal(signal.SIGTERM, end)
    os.umask(0o022)
    disk = load(sys.argv[1])
    try:
        code = bring(disk, sys.argv[2])
    except (NoFreeSpaceError, disk.NoSpaceError, OSError) as error:
        message = str(error)
        Path(os.environ["TERMINATION_LOG"]).write_text(message, encoding="utf-8")
        sys.stderr.write(message + "\n")
        code = disk.NEEDS_PERSON
    sys.exit(code)


if __name__ == "__main__":
    main()
