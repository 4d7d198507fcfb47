"""Keep checkpoints on a disk of a node, one copy for all pods of a namespace.

A container next to the server runs this file, with pod_program.py in place of its import, for as
long as the pod runs; the rest of Tonnage only reads its text. Its argument is the text of
download.py. Environment variables: ROOT (the directory of the namespace), FOLDER (path of the
checkpoint below it), SIZE (bytes of the checkpoint), CAPACITY (bytes that the node has for
weights), TTL (seconds), READY (a file that is made when the checkpoint is there), PAUSE (seconds
that a failure waits before it ends the container, for pods that are made again without a pause),
TERMINATION_LOG, and those of download.py.

The container holds a shared lock on its checkpoint, which the kernel releases however the container
ends. A checkpoint that nothing holds is deleted when it was not used for TTL seconds, or when
another one needs its space and it is the one that was not used for longest.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from tonnage.checkpoint.hub.pod_program import NEEDS_PERSON, count_bytes

COMMIT = re.compile(r"\.?([0-9a-f]{40})(\.partial)?")
"""Names of the folders of a checkpoint: complete, and as download.py fills it."""

HOUR = 3600
GIB = 2**30


class NoSpaceError(Exception):
    """The checkpoint has no space on the disk."""


class Kept:
    """A checkpoint on the disk, complete or not; `folder` is where it is when it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.partial = folder.parent / f".{folder.name}.partial"
        self.use = folder.parent / f".{folder.name}.use"
        """Locked while the checkpoint is used, changed when it last was; its text is the size that
        a download will have."""

    def present(self) -> int:
        """Bytes of its files."""
        return count_bytes(self.folder) + count_bytes(self.partial)

    def planned(self) -> int:
        """Bytes that it has when it is complete, 0 where that is unknown."""
        try:
            return max(0, int(self.use.read_text("utf-8")[:20]))
        except (OSError, ValueError):
            return 0

    def last_used(self) -> float:
        """Seconds since the epoch."""
        with suppress(OSError):
            return self.use.stat().st_mtime
        with suppress(OSError):
            return self.folder.stat().st_mtime
        return 0.0

    def remove(self) -> None:
        """Delete it. First it gets the name of an incomplete one: one that is deleted in part is
        never loaded."""
        with suppress(OSError):
            shutil.rmtree(self.partial, ignore_errors=True)
            if self.folder.exists():
                self.folder.rename(self.partial)
            shutil.rmtree(self.partial, ignore_errors=True)
            os.truncate(self.use, 0)


def list_kept(root: Path) -> list[Kept]:
    """Return all checkpoints below a directory."""
    folders = set()
    for entry in root.glob("*/*"):
        match = COMMIT.fullmatch(entry.name)
        if match and entry.is_dir() and not entry.is_symlink():
            folders.add(entry.parent / match[1])
    return [Kept(folder) for folder in sorted(folders)]


@contextmanager
def hold(kept: Kept) -> Iterator[None]:
    """Hold a checkpoint as one that is used; wait while it is being deleted."""
    with kept.use.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            os.utime(kept.use)


def lock_unused(kept: Kept, stack: ExitStack) -> bool:
    """Keep others from beginning to use a checkpoint until the stack ends. Return whether nothing
    uses it."""
    file: IO[str] = stack.enter_context(open_as_it_is(kept))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def open_as_it_is(kept: Kept) -> IO[str]:
    """Open the file that is locked, which a checkpoint from elsewhere lacks."""
    used = kept.last_used()
    is_new = not kept.use.exists()
    file = kept.use.open("a")
    if is_new:
        os.utime(kept.use, (used, used))
    return file


def free_space(root: Path, wanted: Kept, size: int, capacity: int) -> None:
    """Plan the download of `size` bytes, and delete what is not used, least recently used first,
    until it fits. Raise NoSpaceError, and delete nothing, where it cannot."""
    if size > capacity:
        raise NoSpaceError(
            f"the model takes {format_gib(size)}, and the node has {format_gib(capacity)} for"
            " weights (spec.weights.nodeDisk.capacity of the AcceleratorPool)"
        )
    with ExitStack() as stack:
        file = stack.enter_context((root / ".lock").open("w"))
        fcntl.flock(file, fcntl.LOCK_EX)
        others = [kept for kept in list_kept(root) if kept.folder != wanted.folder]
        unused = [kept for kept in others if lock_unused(kept, stack)]
        sizes = {kept.folder: (kept.present(), kept.planned()) for kept in others}
        taken = sum(max(present, planned) for present, planned in sizes.values())
        to_come = sum(max(0, planned - present) for present, planned in sizes.values())
        missing = max(0, size - wanted.present())
        lacking = max(taken + size - capacity, to_come + missing - shutil.disk_usage(root).free)
        for kept in choose(unused, sizes, lacking):
            kept.remove()
        wanted.use.write_text(str(size), "utf-8")


def choose(unused: Iterable[Kept], sizes: dict[Path, tuple[int, int]], lacking: int) -> list[Kept]:
    """Return the checkpoints to delete, so that `lacking` bytes become free. Raise NoSpaceError."""
    chosen = []
    for kept in sorted(unused, key=Kept.last_used):
        if lacking <= 0:
            break
        lacking -= max(sizes[kept.folder])
        chosen.append(kept)
    if lacking > 0:
        used = sum(map(max, sizes.values())) - sum(max(sizes[kept.folder]) for kept in chosen)
        raise NoSpaceError(
            f"the disk of the node lacks {format_gib(lacking)} for the model; pods of the namespace"
            f" use {format_gib(used)} of it for other models, and delete only models that are not"
            " used"
        )
    return chosen


def tidy(root: Path, wanted: Kept, ttl: int) -> None:
    """Note that the checkpoint is used, and delete what has not been used for `ttl` seconds."""
    with suppress(OSError), ExitStack() as stack:
        os.utime(wanted.use)
        for kept in list_kept(root):
            is_expired = time.time() - kept.last_used() > ttl
            if is_expired and lock_unused(kept, stack):
                kept.remove()


def format_gib(size: int) -> str:
    """Return a size in GiB."""
    return f"{size / GIB:.1f} GiB"


def end(signum: int, frame: object) -> None:
    """End on SIGTERM, which the first process of a container does not do by itself."""
    sys.exit(0)


def keep(root: Path, wanted: Kept, program: str) -> int:
    """Bring the checkpoint to the disk, and hold it. Return the exit code of a download that
    failed. Raise NoSpaceError or OSError."""
    wanted.folder.parent.mkdir(parents=True, exist_ok=True)
    ttl = int(os.environ["TTL"])
    with hold(wanted):
        if not wanted.folder.exists():
            size, capacity = int(os.environ["SIZE"]), int(os.environ["CAPACITY"])
            free_space(root, wanted, size, capacity)
            command = [sys.executable, "-c", program]
            code = subprocess.run(command, check=False).returncode  # noqa: S603 - shipped text
            if code:
                return code
        tidy(root, wanted, ttl)
        Path(os.environ["READY"]).touch()
        while True:
            time.sleep(HOUR)  # nothing else happens until SIGTERM
            tidy(root, wanted, ttl)


def main() -> None:
    """Keep the checkpoint, and leave one line on the cause of a failure."""
    signal.signal(signal.SIGTERM, end)
    os.umask(0o022)
    try:
        code = keep(Path(os.environ["ROOT"]), Kept(Path(os.environ["FOLDER"])), sys.argv[1])
    except (NoSpaceError, OSError) as error:
        message = str(error)
        Path(os.environ["TERMINATION_LOG"]).write_text(message, encoding="utf-8")
        sys.stderr.write(message + "\n")
        code = NEEDS_PERSON
    time.sleep(int(os.environ["PAUSE"]))  # LeaderWorkerSet makes groups again at once
    sys.exit(code)


if __name__ == "__main__":
    main()
