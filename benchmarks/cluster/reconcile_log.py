"""The operator's reconciles, from its log: of which key, when, and how many."""

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

from e2e.harness.failure import HarnessError

_POLL_SECONDS: Final = 0.25


@dataclass(slots=True)
class ReconcileLog:
    """Reconciles since the last `skip()`: how many of each key (`namespace/name`), when the first
    of each key and the last of all ended (Unix time, seconds)."""

    path: Path
    reconciles: Counter[str] = field(default_factory=Counter)
    first: dict[str, float] = field(default_factory=dict)
    last: float = 0.0
    _read_bytes: int = 0

    def skip(self) -> None:
        """Forget everything up to the present end of the log."""
        self.refresh()
        self.reconciles.clear()
        self.first.clear()
        self.last = 0.0

    def refresh(self) -> None:
        """Read what the operator has written since the last refresh."""
        if not self.path.exists():
            return
        with self.path.open("rb") as log:
            log.seek(self._read_bytes)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_bytes += len(line)
                if b'"reconciled"' in line:
                    self._add(json.loads(line))

    def _add(self, entry: dict[str, str]) -> None:
        at = datetime.fromisoformat(entry["time"]).timestamp()
        self.reconciles[entry["key"]] += 1
        self.first.setdefault(entry["key"], at)
        self.last = max(self.last, at)

    def count_others(self, keys: Collection[str]) -> int:
        """How many reconciles there were of objects that have none of these keys."""
        return self.reconciles.total() - sum(self.reconciles[key] for key in keys)

    async def until_quiet(
        self, keys: Collection[str], quiet_seconds: float, within_seconds: float
    ) -> None:
        """Wait until the operator has reconciled each of these keys, and then nothing for a while.
        Raises HarnessError."""
        expected, deadline = set(keys), time.monotonic() + within_seconds
        while True:
            self.refresh()
            missing = expected - self.first.keys()
            if not missing and time.time() - self.last >= quiet_seconds:
                return
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"the operator has not settled after {within_seconds:g} s: {len(missing)} of"
                    f" {len(expected)} objects are not reconciled, after"
                    f" {self.reconciles.total()} reconciles ({self.path})"
                )
            await asyncio.sleep(_POLL_SECONDS)
