"""The API server's audit log: a line of JSON for each request that it answered."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from e2e.harness.rest import Json

_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class AuditLog:
    """A log that the API server writes while it is read: the end of it may be a part of a line."""

    path: Path

    def events(self, since: int = 0) -> list[Json]:
        """Return the events of all complete lines from a `mark()` on."""
        with self.path.open("rb") as log:
            log.seek(since)
            # After an incomplete line, its rest would come, which may be there by then.
            return [json.loads(line) for line in takewhile(_is_complete, log)]

    def mark(self) -> int:
        """Return where the last complete line ends, in bytes."""
        with self.path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            while end > 0:
                start = max(0, end - _BLOCK)
                log.seek(start)
                newline = log.read(end - start).rfind(b"\n")
                if newline >= 0:
                    return start + newline + 1
                end = start
        return 0


def _is_complete(line: bytes) -> bool:
    return line.endswith(b"\n")
