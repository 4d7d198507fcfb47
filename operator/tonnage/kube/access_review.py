"""Who a token belongs to, and what RBAC allows that user: TokenReview and SubjectAccessReview."""

from enum import Enum, auto
from typing import Any, Final

from tonnage import delays
from tonnage.kube.kinds import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from tonnage.kube.protocol import Kind, Object
from tonnage.kube.transport import Request, Transport

_USER_FIELDS: Final = {"username": "user", "uid": "uid", "groups": "groups", "extra": "extra"}
"""Fields of a TokenReview's user, and their names in a SubjectAccessReview."""


class Verdict(Enum):
    """What the API server says of a token and a path."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()
    """The token is of no user: wrong, expired, or for another audience."""
    FORBIDDEN = auto()
    """No role grants the user `get` on the path."""


class AioAccessReviewer:
    """Reviews tokens of one API server. Both reviews are creates that store nothing, so a standby
    reviews too."""

    def __init__(
        self, transport: Transport, *, timeout_seconds: float = delays.ACCESS_REVIEW_TIMEOUT
    ) -> None:
        self._transport = transport
        self._timeout_seconds = timeout_seconds

    async def review(self, token: str, path: str) -> Verdict:
        """Whether the user of the token may `get` this path, which is no resource.

        Raises ApiError where the API server does not say.
        """
        status = await self._create(TOKEN_REVIEWS, {"token": token})
        if status.get("authenticated") is not True:
            return Verdict.UNAUTHENTICATED
        user = status.get("user") or {}
        spec = {new: user[old] for old, new in _USER_FIELDS.items() if old in user}
        spec["nonResourceAttributes"] = {"path": path, "verb": "get"}
        status = await self._create(SUBJECT_ACCESS_REVIEWS, spec)
        return Verdict.ALLOWED if status.get("allowed") is True else Verdict.FORBIDDEN

    async def _create(self, kind: Kind, spec: Object) -> dict[str, Any]:
        """Create the review and return its status."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        request = Request("create", "POST", kind, None, None, body=body)
        review = await self._transport.fetch_object(request, self._timeout_seconds)
        return review.get("status") or {}
