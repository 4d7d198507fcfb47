"""Time that passes only when a test lets it, or when the code under test sleeps."""

import asyncio
from datetime import UTC, datetime, timedelta


class FakeClock:
    """Monotonic seconds and a wall clock, which can be set apart."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall = datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return self.wall

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)
