"""Node heartbeats as kubelets send them: each reports its status every five minutes, changed or
not (nodeStatusReportFrequency of the kubelet's configuration)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from e2e.scale.api_client import ApiClient
from e2e.scale.fleet_objects import conditions_of

PERIOD_SECONDS: Final = 300.0


@dataclass(slots=True)
class Beats:
    """How many heartbeats were sent so far."""

    sent: int = 0


@asynccontextmanager
async def beating(client: ApiClient, names: Sequence[str]) -> AsyncIterator[Beats]:
    """Let these nodes report, each once in a period, evenly spread over it."""
    beats = Beats()
    task = asyncio.create_task(_beat(client, names, beats))
    try:
        yield beats
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _beat(client: ApiClient, names: Sequence[str], beats: Beats) -> None:
    started = time.monotonic()
    while True:
        due = started + beats.sent * PERIOD_SECONDS / len(names)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told = conditions_of(ready=True, heartbeat=now)
        await client.patch_conditions(f"/api/v1/nodes/{names[beats.sent % len(names)]}", told)
        beats.sent += 1
