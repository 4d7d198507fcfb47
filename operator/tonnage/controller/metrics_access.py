"""Who may read /metrics: callers whose bearer token the API server accepts, as in
controller-runtime's `filters.WithAuthenticationAndAuthorization`.

Verdicts are kept for a short time, so that a scrape costs no request to the API server. Reviews at
the same time are few, so that a caller with random tokens cannot make the operator load the API
server.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from tonnage import delays
from tonnage.kube.access_review import Verdict
from tonnage.kube.protocol import ApiError

_log = logging.getLogger(__name__)

METRICS_PATH: Final = "/metrics"

MAX_REVIEWS: Final = 4
"""Reviews at the same time; a further one is refused at once."""

MAX_VERDICTS: Final = 256
"""Verdicts kept; the oldest is dropped first."""

_SCHEME: Final = "bearer "

Review = Callable[[str, str], Awaitable[Verdict]]
"""Reviews a token and a path. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a caller who may not read: an HTTP status, and what the caller needs."""

    status: int
    message: str


_UNAUTHENTICATED: Final = Refusal(
    401, "send the token of a ServiceAccount: Authorization: Bearer TOKEN"
)
_FORBIDDEN: Final = Refusal(
    403, 'bind a ClusterRole with nonResourceURLs ["/metrics"], verbs ["get"] to the caller'
)
_BUSY: Final = Refusal(429, "too many tokens are under review, send the request again")
_UNKNOWN: Final = Refusal(503, "the API server does not review the token, see the operator's log")

_REFUSALS: Final = {
    Verdict.ALLOWED: None,
    Verdict.UNAUTHENTICATED: _UNAUTHENTICATED,
    Verdict.FORBIDDEN: _FORBIDDEN,
}


class MetricsAccess:
    """Decides on requests for /metrics; for one event loop."""

    def __init__(self, review: Review, clock: Callable[[], float] = time.monotonic) -> None:
        self._review = review
        self._clock = clock
        self._verdicts: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)

    async def refuse(self, authorization: str) -> Refusal | None:
        """Why a request with this Authorization header is refused; None if it is allowed."""
        if not authorization.lower().startswith(_SCHEME):
            return _UNAUTHENTICATED
        token = authorization[len(_SCHEME) :].strip()
        if not token:
            return _UNAUTHENTICATED
        digest = sha256(token.encode(errors="replace")).digest()
        verdict = self._recall(digest)
        if verdict is not None:
            return _REFUSALS[verdict]
        if self._reviews.locked():
            return _BUSY
        async with self._reviews:
            try:
                verdict = await self._review(token, METRICS_PATH)
            except ApiError as error:
                _log.warning("cannot review a token for %s: %s", METRICS_PATH, error)
                return _UNKNOWN
        self._keep(digest, verdict)
        return _REFUSALS[verdict]

    def _recall(self, digest: bytes) -> Verdict | None:
        verdict, expires = self._verdicts.get(digest, (None, 0.0))
        return verdict if expires > self._clock() else None

    def _keep(self, digest: bytes, verdict: Verdict) -> None:
        is_allowed = verdict is Verdict.ALLOWED
        seconds = delays.KEEP_ALLOWED if is_allowed else delays.KEEP_REFUSED
        self._verdicts[digest] = (verdict, self._clock() + seconds)
        self._verdicts.move_to_end(digest)
        if len(self._verdicts) > MAX_VERDICTS:
            self._verdicts.popitem(last=False)
