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

from benchmarks.cluster.api_client import ApiClient
from benchmarks.cluster.fleet_objects import node_conditions

PERIOD_SECONDS: Final = 300.0


@dataclass(slots=True)
class HeartbeatCount:
    """How many heartbeats were sent so far."""

    sent: int = 0


@asynccontextmanager
async def node_heartbeats(client: ApiClient, names: Sequence[str]) -> AsyncIterator[HeartbeatCount]:
    """Let these nodes report, each once in a period, evenly spread over it."""
    count = HeartbeatCount()
    task = asyncio.create_task(_send(client, names, count))
    try:
        yield count
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _send(client: ApiClient, names: Sequence[str], count: HeartbeatCount) -> None:
    started = time.monotonic()
    while True:
        due = started + count.sent * PERIOD_SECONDS / len(names)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = node_conditions(ready=True, heartbeat=now)
        path = f"/api/v1/nodes/{names[count.sent % len(names)]}"
        await client.patch_conditions(path, conditions)
        count.sent += 1
