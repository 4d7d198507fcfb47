"""Free loopback ports that stay ours.

Asking the kernel for port 0 and closing the socket leaves a gap in which another stack, or any
outgoing connection, takes the port. So ports come from below the ephemeral range, and each is held
by a file lock for as long as its stack lives; the kernel drops the lock with the process.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from e2e.harness.failure import HarnessError

_FIRST, _LAST = 20_000, 31_999


class PortLease:
    """Named ports, reserved until `release` or the end of the process."""

    def __init__(self, names: Sequence[str]) -> None:
        self._locks: list[int] = []
        self.ports: dict[str, int] = {}
        candidates = random.sample(range(_FIRST, _LAST + 1), 2_000)
        for name in names:
            self.ports[name] = self._reserve(candidates, name)

    def _reserve(self, candidates: list[int], name: str) -> int:
        folder = Path(tempfile.gettempdir()) / f"tonnage-e2e-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        while candidates:
            port = candidates.pop()
            lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
                self._locks.append(lock)
                return port
            os.close(lock)
        raise HarnessError(
            f"no free loopback port for {name} among {_FIRST}-{_LAST}; stop what listens there"
        )

    def release(self) -> None:
        """Give the ports back."""
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()
