"""Rate limits: a token bucket on the monotonic clock."""

import asyncio
import time
from collections.abc import Callable


class TokenBucket:
    """Allows `burst` at once, then `rate` per second. Callers wait in order."""

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._refilled_at = clock()

    def try_take(self) -> bool:
        """Take a token if one is available now."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def reserve(self) -> float:
        """Take a token, a future one if need be. Returns the seconds until it is available."""
        self._refill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """Return a reserved token that is not needed."""
        self._refill()
        self._tokens = min(self._burst, self._tokens + 1)

    async def take(self) -> None:
        """Take a token and wait until it is available."""
        seconds = self.reserve()
        if seconds > 0:
            await asyncio.sleep(seconds)

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now
