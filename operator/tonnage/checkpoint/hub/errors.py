"""Translate failures of the Hub into messages that say what to do.

The Hub marks refusals with the header X-Error-Code, which huggingface_hub turns into classes;
mirrors often send only the status, so this module checks the status, too. The errors do not chain
their cause: its text comes from the server, and its request carries the token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined] # lazy export

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.model import HuggingFaceSource
from tonnage.api.text import redact
from tonnage.checkpoint.lookup import ModelLookupError
from tonnage.checkpoint.model import CheckpointError, UnsupportedArchitectureError

MAX_SERVER_TEXT: Final = 200
"""Characters of a server's text in a message."""


@dataclass(frozen=True, slots=True)
class HubInputs:
    """Where a user gives the inputs of a request, for messages that say what to change.

    `token` is set to `token_value`; `alternative` is how to give a model without the Hub.
    """

    repository: str
    revision: str
    token: str
    token_value: str
    alternative: str


SPEC_INPUTS: Final = HubInputs(
    repository="spec.model.source.huggingFace.repo",
    revision="spec.model.source.huggingFace.revision",
    token="spec.model.source.huggingFace.tokenSecretRef",  # noqa: S106 - the name of a field
    token_value="a Secret with a token",  # noqa: S106 - a text
    alternative="give the facts by spec.model.source.configMap or inline",
)

ADAPTER_INPUTS: Final = HubInputs(
    repository="spec.lora.adapters[].source.huggingFace.repo",
    revision="spec.lora.adapters[].source.huggingFace.revision",
    token="spec.lora.adapters[].source.huggingFace.tokenSecretRef",  # noqa: S106 - see above
    token_value="a Secret with a token",  # noqa: S106 - see above
    alternative="set spec.lora.adapters[].rank, or spec.lora.maxRank",
)
"""Objects share the answers about an adapter, which they may list at different places."""


@dataclass(frozen=True, slots=True)
class HubRequest:
    """The facts of a request for messages; `endpoint` is without credentials.

    Messages reveal of the token only whether there was one. `secrets`, the token and the endpoint's
    password, are redacted in the server's text.
    """

    source: HuggingFaceSource
    endpoint: str
    timeout_seconds: float
    has_token: bool
    secrets: tuple[str, ...] = field(default=(), repr=False)
    inputs: HubInputs = SPEC_INPUTS

    @property
    def repository(self) -> str:
        """The repository and the requested revision, for a message."""
        return f"repository {self.source.repo} at revision {self.source.revision}"

    @property
    def token(self) -> str:
        """The source of the token, for a message."""
        secret = self.source.token_secret_ref
        return f"the token in Secret {secret.name}, key {secret.key}" if secret else "the token"


@contextmanager
def translate_errors(request: HubRequest) -> Iterator[None]:
    """Turn each failure inside the context into a ModelLookupError."""
    try:
        yield
    except HfHubHTTPError as error:
        raise _response_error(request, error) from None
    except UnsupportedArchitectureError as error:
        raise _content_error(request, Reason.UNSUPPORTED_ARCHITECTURE, error) from None
    except CheckpointError as error:
        raise _content_error(request, Reason.INVALID_MODEL, error) from None
    except HFValidationError as error:
        text = _sanitize(request, str(error))
        message = f"{request.inputs.repository} {request.source.repo!r} is no repository id: {text}"
        raise ModelLookupError(Reason.INVALID_SPEC, message) from None
    except (OfflineModeIsEnabled, TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
        message = f"{request.repository} cannot be read: {_format_unreachable(request, error)}"
        raise ModelLookupError(Reason.MODEL_SOURCE_UNREACHABLE, message) from None


def _content_error(request: HubRequest, reason: Reason, error: CheckpointError) -> ModelLookupError:
    return ModelLookupError(reason, f"{request.repository}: {error}")


def _format_unreachable(request: HubRequest, error: Exception) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return (
            "HF_HUB_OFFLINE is set in the environment of tonnage; unset it, or "
            f"{request.inputs.alternative}"
        )
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return (
            f"{request.endpoint} did not answer in time (limit {request.timeout_seconds:g} s a "
            "request); check the network policy and the proxy between tonnage and the Hub"
        )
    text = _sanitize(request, str(error))
    return (
        f"{request.endpoint} cannot be reached ({type(error).__name__}: {text}); "
        "check HF_ENDPOINT, DNS, proxy and network policy, or "
        f"{request.inputs.alternative}"
    )


def _response_error(request: HubRequest, error: HfHubHTTPError) -> ModelLookupError:
    """Return the error for a response of the Hub; the most precise cause first."""
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return ModelLookupError(Reason.MODEL_ACCESS_DENIED, _format_gated(request))
    if isinstance(error, RevisionNotFoundError):
        return ModelLookupError(
            Reason.MODEL_NOT_FOUND,
            f"repository {request.source.repo} on {request.endpoint} has no revision "
            f"{request.source.revision!r}: set {request.inputs.revision} to a branch, tag or "
            "commit it has",
        )
    if isinstance(error, RemoteEntryNotFoundError):
        return ModelLookupError(
            Reason.INVALID_MODEL,
            f"{request.repository}: {request.endpoint} lists a file that it does not have; "
            "is an upload under way?",
        )
    if status == httpx.codes.UNAUTHORIZED and request.has_token:
        return ModelLookupError(
            Reason.MODEL_ACCESS_DENIED,
            f"{request.endpoint} refused {request.token} for {request.repository}: it is expired, "
            "revoked or mistyped; write a valid one",
        )
    if isinstance(error, RepositoryNotFoundError) or status in (
        httpx.codes.UNAUTHORIZED,
        httpx.codes.NOT_FOUND,
    ):
        return ModelLookupError(Reason.MODEL_NOT_FOUND, _format_not_found(request))
    if isinstance(error, DisabledRepoError) or status == httpx.codes.FORBIDDEN:
        return ModelLookupError(Reason.MODEL_ACCESS_DENIED, _format_forbidden(request, error))
    return _unavailable_error(request, error)


def _format_gated(request: HubRequest) -> str:
    page = f"{request.endpoint}/{request.source.repo}"
    if request.has_token:
        return (
            f"repository {request.source.repo} is gated and {request.token} has no access: ask for "
            f"it at {page} with the token's account; a fine-grained token also needs the "
            "permission to read gated repositories"
        )
    return (
        f"repository {request.source.repo} is gated: ask for access at {page}, and set "
        f"{request.inputs.token} to {request.inputs.token_value} of that account"
    )


def _format_forbidden(request: HubRequest, error: HfHubHTTPError) -> str:
    advice = (
        f"check the permissions of {request.token}"
        if request.has_token
        else f"set {request.inputs.token} to {request.inputs.token_value} that may read it"
    )
    reason = _sanitize(request, error.server_message) or "no reason given"
    return f"{request.endpoint} forbids {request.repository} ({reason}); {advice}"


def _format_not_found(request: HubRequest) -> str:
    if request.has_token:
        return (
            f"repository {request.source.repo} does not exist on {request.endpoint}, or "
            f"{request.token} may not see it: check {request.inputs.repository} and the token's "
            "permissions"
        )
    return (
        f"repository {request.source.repo} does not exist on {request.endpoint}, or it is private; "
        f"without a token the Hub answers both alike: check {request.inputs.repository}, or set "
        f"{request.inputs.token}"
    )


def _unavailable_error(request: HubRequest, error: HfHubHTTPError) -> ModelLookupError:
    """Return the error for 429 and for statuses that say nothing about the repository."""
    status, retry_after = error.response.status_code, _read_retry_after(error.response)
    if status == httpx.codes.TOO_MANY_REQUESTS:
        wait = "" if retry_after is None else f", asks to wait {retry_after:g} s"
        advice = "" if request.has_token else f"; the limit is higher with {request.inputs.token}"
        cause = f"{request.endpoint} limits the rate of requests (429){wait}{advice}"
    else:
        text = _sanitize(request, error.server_message)
        cause = f"{request.endpoint} answered {status}{f' ({text})' if text else ''}"
    return ModelLookupError(
        Reason.MODEL_SOURCE_UNREACHABLE,
        f"{request.repository} cannot be read now: {cause}",
        retry_after,
    )


def _read_retry_after(response: httpx.Response) -> float | None:
    """Return the wait in seconds that Retry-After or the Hub's `ratelimit` asks for."""
    text = response.headers.get("Retry-After", "").strip()
    limit = parse_ratelimit_headers(response.headers)
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        seconds = float(text)
    elif response.status_code == httpx.codes.TOO_MANY_REQUESTS and limit and limit.remaining == 0:
        seconds = float(limit.reset_in_seconds)
    else:
        return None
    return min(seconds, delays.MAX_HUB_RETRY_AFTER)


def _sanitize(request: HubRequest, text: str | None) -> str:
    """Return a server's text as one short printable line without secrets."""
    line = " ".join((text or "")[: 4 * MAX_SERVER_TEXT].split())
    printable = "".join(char for char in line if char.isprintable())
    return redact(printable, request.secrets)[:MAX_SERVER_TEXT]
