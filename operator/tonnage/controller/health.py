"""Liveness and readiness of this process, judged by its progress."""

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

    def wait_for(self, condition: str) -> None:
        """Make the process unready until `reached` is called for this condition."""
        self._waiting_for[condition] = ""

    def record_failure(self, condition: str, error: str) -> None:
        """Record why the condition is not reached; /readyz shows the error."""
        self._waiting_for[condition] = f": {error}"

    def reached(self, condition: str) -> None:
        """Record that the condition is reached."""
        self._waiting_for.pop(condition, None)

    def missing(self) -> list[str]:
        """The conditions not yet reached, with the last error of each; empty when ready.

        Standby replicas are ready too.
        """
        return sorted(condition + error for condition, error in self._waiting_for.items())

    def problems(self) -> list[str]:
        """Why the kubelet should restart the process; empty when alive."""
        problems = []
        if (lag := self._clock() - self._expected_at) > delays.MAX_LAG:
            problems.append(f"the event loop is {lag:.0f} s late")
        if (oldest := self._oldest_in_flight()) > self._max_in_flight_seconds:
            problems.append(f"a reconcile has been running for {oldest:.0f} s")
        return problems

    async def measure_lag(self) -> None:
        """Measure the event loop's lag, for ever."""
        while True:
            self._expected_at = self._clock() + delays.MEASURE_LAG
            await asyncio.sleep(delays.MEASURE_LAG)
