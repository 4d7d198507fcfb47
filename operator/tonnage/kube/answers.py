"""What an HTTP answer means: a JSON object, or one of the errors of the protocol."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tonnage import delays
from tonnage.api.names import GROUP
from tonnage.api.redact import redact
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KindMissingError,
    NotFoundError,
    Object,
    TransientError,
)
from tonnage.kube.rights import Right, read_denial

MAX_MESSAGE_CHARACTERS: Final = 2048
"""Longest server message kept in an error; a webhook can answer with any length."""

_UNDECLARED: Final = "field not declared in schema"
"""The server's words for an applied field that its schema does not have."""

_TRANSIENT: Final = frozenset({408, 410, 425, 429})
_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    401: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
}


def parse_object(what: str, body: bytes) -> Object:
    """The answer's JSON object. Raises TransientError: only a broken proxy answers otherwise."""
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise TransientError(f"{what}: the answer is not JSON: {error}") from error
    except RecursionError:
        raise TransientError(f"{what}: the answer is JSON nested too deeply") from None
    if not isinstance(parsed, dict):
        raise TransientError(f"{what}: the answer is not a JSON object")
    return parsed


def error_for(
    what: str, asked: Right, status: int, headers: Mapping[str, str], body: bytes
) -> ApiError:
    """The error that an HTTP status stands for, with the server's own words in its message.

    `asked` is the right that the request itself needs.
    """
    answer = _parse_status(body)
    words = _server_message(answer, body)
    message = f"{what}: {status}: {_advice(words)}{words}"
    if status == 403:
        return ForbiddenError(message, read_denial(words, asked))
    if status == 410:
        return ExpiredError(message)
    if status in _TRANSIENT or status >= 500:
        return TransientError(message, _retry_after(headers.get("Retry-After")))
    if status == 422 and _uid_differs(answer):
        return ConflictError(message)
    if status == 404 and not _names_an_object(answer):
        return KindMissingError(message)
    return _ERRORS.get(status, InvalidError)(message)


def _parse_status(body: bytes) -> Mapping[str, Any]:
    """The Status object of a failure; empty when something else than an API server answered."""
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return status if isinstance(status, dict) else {}


def _server_message(status: Mapping[str, Any], body: bytes) -> str:
    message = status.get("message")
    if not isinstance(message, str):
        message = body[: 4 * MAX_MESSAGE_CHARACTERS].decode(errors="replace")
    return redact(message[: 2 * MAX_MESSAGE_CHARACTERS])[:MAX_MESSAGE_CHARACTERS]


def _advice(words: str) -> str:
    """What to do, where the server's words alone lead nobody there."""
    if _UNDECLARED in words and f"; {GROUP}/" in words:
        return "the CRD is older than this operator, apply the one that `tonnage crds` prints: "
    return ""


def _names_an_object(status: Mapping[str, Any]) -> bool:
    """Whether it is an object that is missing; of a kind it does not know a server says less."""
    details = status.get("details")
    return isinstance(details, dict) and bool(details.get("name"))


def _uid_differs(status: Mapping[str, Any]) -> bool:
    """An apply for another uid than the live object's is refused as a change of the field."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes
    )


def _retry_after(header: str | None) -> float | None:
    """Seconds; the HTTP date form is no API server's, and is ignored."""
    if header is None or not header.isdecimal() or len(header) > 9:
        return None
    return min(float(header), delays.MAX_RETRY_AFTER)
