"""How many keys that are no wishes are processed at a time: a wish hardly waits for them."""

import math
from typing import Final, Generic, TypeVar

K = TypeVar("K")

WISH_SECONDS: Final = 0.5
"""Where there was a wish, more are often about to come: whoever makes objects makes several. Where
they come more slowly than that, there is room for all else between them."""

LONG_SECONDS: Final = 1.0
"""A key that is processed for longer waits for somebody else, and takes nothing from a wish."""

CROWD_SECONDS: Final = 30.0
"""Where wishes have come for longer than that, all else has waited for long enough."""


class OthersAtOnce(Generic[K]):
    """`usually` so many, so that a wish never waits for all the workers to come back from them.

    For a while after a wish was handed out no more than `beside_wishes` start: a first child waits
    for whatever the one thread and the API server do meanwhile. Less than 1 (and more than 0) is a
    part of the time of one: with a quarter, a tenth of a second of work is followed by three of
    rest, so that the longer answers take, the less is asked. Where wishes have come for half a
    minute, one goes on without rest.
    """

    def __init__(self, usually: float = math.inf, beside_wishes: float = math.inf) -> None:
        self._usually = usually
        self._beside_wishes = max(1.0, beside_wishes)
        self._rest_for_work = max(0.0, 1.0 / beside_wishes - 1.0)
        self._started: dict[K, float] = {}
        self._rests_until = -math.inf
        self._first_wish = -math.inf
        self._last_wish = -math.inf

    def wish_started(self, now: float) -> None:
        """A wish was handed out."""
        if now - self._last_wish >= WISH_SECONDS:
            self._first_wish = now
        self._last_wish = now

    def started(self, key: K, now: float) -> None:
        """Another key was handed out."""
        self._started[key] = now

    def done(self, key: K, now: float) -> None:
        """A key is no longer processed, a wish or another."""
        started = self._started.pop(key, None)
        if started is not None:
            worked = min(now - started, LONG_SECONDS)
            self._rests_until = now + worked * self._rest_for_work

    def seconds_to_room(self, now: float) -> float:
        """Seconds until one more may start, if none is done before; not above 0 where it may now,
        and inf where one has to be done."""
        if len(self._started) >= self._usually:
            return math.inf
        ends = sorted(start + LONG_SECONDS - now for start in self._started.values())
        quick = [end for end in ends if end > 0]
        is_room = len(quick) < self._beside_wishes
        one_less = 0.0 if is_room else quick[len(quick) - int(self._beside_wishes)]
        rests_until = min(self._rests_until, self._first_wish + CROWD_SECONDS)
        rested = max(one_less, rests_until - now)
        return min(rested, self._last_wish + WISH_SECONDS - now)
