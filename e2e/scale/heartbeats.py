"""Node heartbeats as kubelets send them: each reports its status every five minutes, changed or
not (nodeStatusReportFrequency of the kubelet's configuration)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from e2e.scale.births import Client
from e2e.scale.fleet_objects import conditions_of

PERIOD_SECONDS: Final = 300.0


@asynccontextmanager
async def beating(client: Client, names: Sequence[str]) -> AsyncIterator[None]:
    """Let these nodes report, each once in a period, evenly spread over it."""
    task = asyncio.create_task(_beat(client, names))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _beat(client: Client, names: Sequence[str]) -> None:
    started, number = time.monotonic(), 0
    while True:
        due = started + number * PERIOD_SECONDS / len(names)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told = conditions_of(ready=True, heartbeat=now)
        await client.report_status(f"/api/v1/nodes/{names[number % len(names)]}", told)
        number += 1
