"""Whether this process is alive and ready, judged by what it does, not by the fact that it runs."""

import asyncio
import time
from collections.abc import Callable

from tonnage import delays


class Health:
    """Liveness from the event loop's lag and the oldest reconcile, readiness from named checks."""

    def __init__(
        self,
        *,
        oldest_in_flight: Callable[[], float],
        max_in_flight_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._oldest_in_flight = oldest_in_flight
        self._max_in_flight_seconds = max_in_flight_seconds
        self._clock = clock
        self._expected_at = clock()
        self._waiting_for: dict[str, str] = {}

    def wait_for(self, what: str) -> None:
        """Ready only after this."""
        self._waiting_for[what] = ""

    def still_waiting(self, what: str, why: str) -> None:
        """It was tried in vain; `why` tells a person what to do."""
        self._waiting_for[what] = f": {why}"

    def reached(self, what: str) -> None:
        """This is no longer waited for."""
        self._waiting_for.pop(what, None)

    def missing(self) -> list[str]:
        """What is still waited for, and why; empty when ready. Standby replicas are ready too."""
        return sorted(what + why for what, why in self._waiting_for.items())

    def troubles(self) -> list[str]:
        """Why a restart is due; empty when alive."""
        troubles = []
        if (lag := self._clock() - self._expected_at) > delays.MAX_LAG:
            troubles.append(f"the event loop is {lag:.0f} s late")
        if (oldest := self._oldest_in_flight()) > self._max_in_flight_seconds:
            troubles.append(f"a reconcile has been running for {oldest:.0f} s")
        return troubles

    async def measure_lag(self) -> None:
        """Keep the lag measured, for ever."""
        while True:
            self._expected_at = self._clock() + delays.MEASURE_LAG
            await asyncio.sleep(delays.MEASURE_LAG)
