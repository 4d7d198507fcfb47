"""Parses HTTP answers of the API server: a JSON object, or an error of the protocol."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tonnage import delays
from tonnage.api.names import GROUP
from tonnage.api.text import read_json_object, redact
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
from tonnage.kube.rights import Right, parse_denial

MAX_MESSAGE_CHARACTERS: Final = 2048
"""Longest server message that an error keeps; a webhook can answer with any length."""

_FIELD_NOT_DECLARED: Final = "field not declared in schema"
"""The server's message for an applied field that its schema does not have."""

_TRANSIENT: Final = frozenset({408, 410, 425, 429})
_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    401: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
}


def parse_object(what: str, body: bytes) -> Object:
    """Parse the JSON object. Raises TransientError: only a broken proxy sends anything else."""
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise TransientError(f"{what}: the answer is not JSON: {error}") from error
    except RecursionError:
        raise TransientError(f"{what}: the answer is JSON nested too deeply") from None
    if not isinstance(parsed, dict):
        raise TransientError(f"{what}: the answer is not a JSON object")
    return parsed


def parse_error(
    what: str, required: Right, status: int, headers: Mapping[str, str], body: bytes
) -> ApiError:
    """Return the error for an HTTP status, with the server's own message in it.

    `required` is the right that the request itself needs.
    """
    status_object = read_json_object(body) or {}  # empty where a proxy answered instead
    server_message = _server_message(status_object, body)
    message = f"{what}: {status}: {_advice(server_message)}{server_message}"
    if status == 403:
        return ForbiddenError(message, parse_denial(server_message, required))
    if status == 410:
        return ExpiredError(message)
    if status in _TRANSIENT or status >= 500:
        return TransientError(message, _retry_after(headers.get("Retry-After")))
    if status == 422 and _uid_differs(status_object):
        return ConflictError(message)
    if status == 404 and not _names_an_object(status_object):
        return KindMissingError(message)
    return _ERRORS.get(status, InvalidError)(message)


def _server_message(status: Mapping[str, Any], body: bytes) -> str:
    message = status.get("message")
    if not isinstance(message, str):
        message = body[: 4 * MAX_MESSAGE_CHARACTERS].decode(errors="replace")
    return redact(message[: 2 * MAX_MESSAGE_CHARACTERS])[:MAX_MESSAGE_CHARACTERS]


def _advice(server_message: str) -> str:
    """What the user can do, where the server's message does not say so."""
    if _FIELD_NOT_DECLARED in server_message and f"; {GROUP}/" in server_message:
        return "the CRD is older than this operator, apply the one that `tonnage crds` prints: "
    return ""


def _names_an_object(status: Mapping[str, Any]) -> bool:
    """Whether an object is missing, and not its kind: a server gives no name then."""
    details = status.get("details")
    return isinstance(details, dict) and bool(details.get("name"))


def _uid_differs(status: Mapping[str, Any]) -> bool:
    """Whether the uid is another one than the live object's: the server refuses to change it."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes
    )


def _retry_after(header: str | None) -> float | None:
    """Seconds. An HTTP date is ignored: API servers never send one."""
    if header is None or not header.isdecimal() or len(header) > 9:
        return None
    return min(float(header), delays.MAX_RETRY_AFTER)
