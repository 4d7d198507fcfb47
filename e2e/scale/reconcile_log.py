"""What an operator's log says of its reconciles: whose, when, and what they wrote."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from e2e.failure import HarnessError

_LOOK_SECONDS: Final = 0.25


@dataclass(slots=True)
class Journal:
    """Reconciles since the last `clear()`: how many of each key, and when each key's first and the
    last of all ended (Unix time)."""

    log: Path
    reconciles: Counter[str] = field(default_factory=Counter)
    first: dict[str, float] = field(default_factory=dict)
    last: float = 0.0
    _read: int = 0

    def skip(self) -> None:
        """What the log says by now is of no interest."""
        self.look()
        self.clear()

    def clear(self) -> None:
        """Begin to count anew."""
        self.reconciles.clear()
        self.first.clear()
        self.last = 0.0

    def look(self) -> None:
        """Take in what was written since the last look."""
        if not self.log.exists():
            return
        with self.log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if b'"reconciled"' in line:
                    self._take(json.loads(line))

    def _take(self, entry: dict[str, str]) -> None:
        at = datetime.fromisoformat(entry["time"]).timestamp()
        self.reconciles[entry["key"]] += 1
        self.first.setdefault(entry["key"], at)
        self.last = max(self.last, at)

    async def until_quiet(
        self, keys: Collection[str], quiet_seconds: float, within_seconds: float
    ) -> None:
        """Wait until each of these keys was reconciled, and then nothing for a while. Raises
        HarnessError."""
        wanted, deadline = set(keys), time.monotonic() + within_seconds
        while True:
            self.look()
            missing = wanted - self.first.keys()
            if not missing and time.time() - self.last >= quiet_seconds:
                return
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"not at rest after {within_seconds:g} s: {len(missing)} of {len(wanted)}"
                    f" objects not looked at, {self.reconciles.total()} reconciles ({self.log})"
                )
            await asyncio.sleep(_LOOK_SECONDS)
