"""Processes by identity: a pid together with its start time, never a name.

A pid alone is reused by the kernel, and a name may belong to somebody else. Every signal that the
harness sends goes to a process whose start time it has compared with the one it recorded.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: the hook below runs between fork and exec and must not import or allocate.
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for all time: `started` is its start in clock ticks since boot."""

    pid: int
    started: int

    @staticmethod
    def of(pid: int) -> ProcessId | None:
        """Return the identity of a live process, None when there is none or it is a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # The second field is the command in brackets and may hold spaces and brackets itself.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else ProcessId(pid, int(fields[19]))

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        return ProcessId.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Signal this very process; one that is gone needs no signal."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                # Compared while the descriptor pins the pid, so that it cannot change hands.
                if self.alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the process has ended; False when it has not after `timeout` seconds."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive():
                return True
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            return bool(poller.poll(timeout * 1000))
        finally:
            os.close(descriptor)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn_bound(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a child that the kernel kills when this process dies, even by SIGKILL.

    Must be called from the main thread: the kernel ties the child to the thread that forked it.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one thread when the servers are started
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Ask the child to end, and make it end when it has not after `timeout` seconds."""
    process.terminate()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout)
