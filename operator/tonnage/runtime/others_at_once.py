"""How many keys that are no wishes are processed at a time: a wish hardly waits for them."""

import math
from typing import Final, Generic, TypeVar

K = TypeVar("K")

WISH_SECONDS: Final = 1.0
"""Where there was a wish, more are often about to come: whoever makes objects makes several. A key
that is processed for longer than that waits for somebody else, and takes nothing from a wish."""


class OthersAtOnce(Generic[K]):
    """`usually` so many, so that a wish never waits for all the workers to come back from them.

    For a while after a wish was handed out no more than `beside_wishes` (1 or more) start: there is
    one thread, and a first child waits for whatever it does meanwhile.
    """

    def __init__(self, usually: float = math.inf, beside_wishes: float = math.inf) -> None:
        self._usually = usually
        self._beside_wishes = beside_wishes
        self._started: dict[K, float] = {}
        self._last_wish = -math.inf

    def wish_started(self, now: float) -> None:
        """A wish was handed out."""
        self._last_wish = now

    def started(self, key: K, now: float) -> None:
        """Another key was handed out."""
        self._started[key] = now

    def done(self, key: K) -> None:
        """A key is no longer processed."""
        self._started.pop(key, None)

    def seconds_to_room(self, now: float) -> float:
        """Seconds until one more may start, if none is done before; not above 0 where it may now,
        and inf where one has to be done."""
        if len(self._started) >= self._usually:
            return math.inf
        ends = sorted(start + WISH_SECONDS - now for start in self._started.values())
        quick = [end for end in ends if end > 0]
        if len(quick) < self._beside_wishes:
            return 0.0
        one_less = quick[len(quick) - int(self._beside_wishes)]
        return min(one_less, self._last_wish + WISH_SECONDS - now)
