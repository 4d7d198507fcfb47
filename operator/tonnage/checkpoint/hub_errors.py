"""What went wrong on the Hub, told apart, in sentences that say what to do.

The Hub tells refusals apart by the header X-Error-Code, which huggingface_hub turns into classes;
mirrors often send the bare status, so the status is looked at as well. Nothing of the cause is kept
but the sentence: its text is the server's, and its request carries the token.
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
from tonnage.api.inference import HuggingFaceSource
from tonnage.api.redact import redact
from tonnage.checkpoint.lookup import ModelLookupError
from tonnage.checkpoint.model import CheckpointError, UnsupportedArchitectureError

FIELD: Final = "spec.model.source.huggingFace"

MAX_FOREIGN_TEXT: Final = 200
"""Characters of a server's own words in a message."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, for the sentences; `endpoint` as it may be shown, without credentials.

    Of the token they tell only whether there was one. `secrets` are taken out of the server's
    words: the token, and the password of the endpoint.
    """

    source: HuggingFaceSource
    endpoint: str
    timeout_seconds: float
    has_token: bool
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def repository(self) -> str:
        """The repository with the revision asked for."""
        return f"repository {self.source.repo} at revision {self.source.revision}"

    @property
    def token(self) -> str:
        """Where the token is from."""
        secret = self.source.token_secret_ref
        return f"the token in Secret {secret.name}, key {secret.key}" if secret else "the token"


@contextmanager
def explained(request: Request) -> Iterator[None]:
    """Turn every failure of the calls inside into a ModelLookupError."""
    try:
        yield
    except HfHubHTTPError as error:
        raise _refusal(request, error) from None
    except UnsupportedArchitectureError as error:
        raise _of_contents(request, Reason.UNSUPPORTED_ARCHITECTURE, error) from None
    except CheckpointError as error:
        raise _of_contents(request, Reason.INVALID_MODEL, error) from None
    except HFValidationError as error:
        words = _words(request, str(error))
        message = f"{FIELD}.repo {request.source.repo!r} is no repository id: {words}"
        raise ModelLookupError(Reason.INVALID_SPEC, message) from None
    except (OfflineModeIsEnabled, TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
        message = f"{request.repository} cannot be read: {_why_unreachable(request, error)}"
        raise ModelLookupError(Reason.MODEL_SOURCE_UNREACHABLE, message) from None


def _of_contents(request: Request, reason: Reason, error: CheckpointError) -> ModelLookupError:
    return ModelLookupError(reason, f"{request.repository}: {error}")


def _why_unreachable(request: Request, error: Exception) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return (
            "HF_HUB_OFFLINE is set in the environment of tonnage; unset it, or give the facts by "
            "spec.model.source.configMap or inline"
        )
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return (
            f"{request.endpoint} did not answer in time (limit {request.timeout_seconds:g} s a "
            "request); check the network policy and the proxy between tonnage and the Hub"
        )
    words = _words(request, str(error))
    return (
        f"{request.endpoint} cannot be reached ({type(error).__name__}: {words}); "
        "check HF_ENDPOINT, DNS, proxy and network policy, or give the facts by "
        "spec.model.source.configMap or inline"
    )


def _refusal(request: Request, error: HfHubHTTPError) -> ModelLookupError:
    """Tell apart what the Hub answered; the most precise cause first."""
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return ModelLookupError(Reason.MODEL_ACCESS_DENIED, _gated(request))
    if isinstance(error, RevisionNotFoundError):
        return ModelLookupError(
            Reason.MODEL_NOT_FOUND,
            f"repository {request.source.repo} on {request.endpoint} has no revision "
            f"{request.source.revision!r}: set {FIELD}.revision to a branch, tag or commit it has",
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
        return ModelLookupError(Reason.MODEL_NOT_FOUND, _not_found(request))
    if isinstance(error, DisabledRepoError) or status == httpx.codes.FORBIDDEN:
        return ModelLookupError(Reason.MODEL_ACCESS_DENIED, _forbidden(request, error))
    return _trouble(request, error)


def _gated(request: Request) -> str:
    page = f"{request.endpoint}/{request.source.repo}"
    if request.has_token:
        return (
            f"repository {request.source.repo} is gated and {request.token} has no access: ask for "
            f"it at {page} with the token's account; a fine-grained token also needs the "
            "permission to read gated repositories"
        )
    return (
        f"repository {request.source.repo} is gated: ask for access at {page}, and set "
        f"{FIELD}.tokenSecretRef to a Secret with a token of that account"
    )


def _forbidden(request: Request, error: HfHubHTTPError) -> str:
    advice = (
        f"check the permissions of {request.token}"
        if request.has_token
        else f"set {FIELD}.tokenSecretRef to a Secret with a token that may read it"
    )
    why = _words(request, error.server_message) or "no reason given"
    return f"{request.endpoint} forbids {request.repository} ({why}); {advice}"


def _not_found(request: Request) -> str:
    if request.has_token:
        return (
            f"repository {request.source.repo} does not exist on {request.endpoint}, or "
            f"{request.token} may not see it: check {FIELD}.repo and the token's permissions"
        )
    return (
        f"repository {request.source.repo} does not exist on {request.endpoint}, or it is private; "
        f"without a token the Hub answers both alike: check {FIELD}.repo, or set "
        f"{FIELD}.tokenSecretRef"
    )


def _trouble(request: Request, error: HfHubHTTPError) -> ModelLookupError:
    """429 and everything that is no answer about the repository."""
    status, retry_after = error.response.status_code, _retry_after(error.response)
    if status == httpx.codes.TOO_MANY_REQUESTS:
        wait = "" if retry_after is None else f", asks to wait {retry_after:g} s"
        advice = "" if request.has_token else f"; the limit is higher with {FIELD}.tokenSecretRef"
        cause = f"{request.endpoint} limits the rate of requests (429){wait}{advice}"
    else:
        words = _words(request, error.server_message)
        cause = f"{request.endpoint} answered {status}{f' ({words})' if words else ''}"
    return ModelLookupError(
        Reason.MODEL_SOURCE_UNREACHABLE,
        f"{request.repository} cannot be read now: {cause}",
        retry_after,
    )


def _retry_after(response: httpx.Response) -> float | None:
    """Return the wait a server asks for, in seconds: Retry-After, or the Hub's `ratelimit`."""
    text = response.headers.get("Retry-After", "").strip()
    limit = parse_ratelimit_headers(response.headers)
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        seconds = float(text)
    elif response.status_code == httpx.codes.TOO_MANY_REQUESTS and limit and limit.remaining == 0:
        seconds = float(limit.reset_in_seconds)
    else:
        return None
    return min(seconds, delays.MAX_HUB_RETRY_AFTER)


def _words(request: Request, text: str | None) -> str:
    """A foreign text as one short printable line without secrets."""
    line = " ".join((text or "")[: 4 * MAX_FOREIGN_TEXT].split())
    printable = "".join(char for char in line if char.isprintable())
    return redact(printable, request.secrets)[:MAX_FOREIGN_TEXT]
