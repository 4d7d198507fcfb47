"""One failure spares the others: what is down is asked once in a while, and not by everybody."""

from collections.abc import Callable


class Breaker:
    """Holds back for `hold_seconds` after a failure; then one goes first, and the others follow
    when it has succeeded. Of one thread; `clock` is monotonic, in seconds."""

    def __init__(self, hold_seconds: float, clock: Callable[[], float]) -> None:
        self._hold_seconds = hold_seconds
        self._clock = clock
        self._in_vain_until: float | None = None

    def lets_through(self) -> bool:
        """Whether to try now. True after a failure means: as the one who goes first."""
        if self._in_vain_until is None:
            return True
        if self._clock() < self._in_vain_until:
            return False
        self.failed()
        return True

    def failed(self) -> None:
        """It was in vain."""
        self._in_vain_until = self._clock() + self._hold_seconds

    def succeeded(self) -> None:
        """Nobody is held back any more."""
        self._in_vain_until = None
