"""One HTTP exchange with the API server: with a timeout, counted, and failing in known ways."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

from tonnage.api.redact import redact
from tonnage.kube.answers import error_for, parse_object
from tonnage.kube.protocol import ApiError, ForbiddenError, Kind, Object, TransientError
from tonnage.kube.rights import Right, RightsBook

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml; charset=utf-8"
"""Server-side apply; the body is JSON, which is YAML, so every API server takes it.

But for two things: JSON's escapes of characters beyond U+FFFF are no YAML, and neither are control
characters that JSON does not escape. So the body is written by us; the charset keeps the client
from writing it itself.
"""

_VERBS: Final[Mapping[str, str]] = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""What is not printable in YAML 1.2 (section 5.1, c-printable), or a line break in YAML 1.1."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of which object, as people and metrics name it, and as HTTP does."""

    verb: str
    method: str
    kind: Kind
    namespace: str | None
    name: str | None
    subresource: str | None = None
    query: Sequence[tuple[str, str | int | bool]] = ()
    body: Object | None = None
    content_type: str = JSON

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.kind.kind} {place}".rstrip()

    @property
    def right(self) -> Right:
        """The right that the request needs, in the words of a role."""
        verb = _VERBS.get(self.method) or ("get" if self.name else "list")
        resource = "/".join(filter(None, (self.kind.plural, self.subresource)))
        return Right(verb, self.kind.group, resource, self.namespace)


Observer = Callable[[Request, str, float], None]
"""Told of each exchange: the request, its HTTP status (or `<error>`), and its seconds."""


class Transport:
    """Exchanges with one API server; `rights` learns which of them it denied for want of a role."""

    def __init__(
        self, client: ApiClient, observe: Observer, rights: RightsBook | None = None
    ) -> None:
        self._client = client
        self._observe = observe
        self._rights = rights or RightsBook()

    async def fetch_object(self, request: Request, timeout_seconds: float) -> Object:
        """Carry out the request. Raises the errors of the protocol."""
        return parse_object(str(request), await self.fetch(request, timeout_seconds))

    async def fetch(self, request: Request, timeout_seconds: float) -> bytes:
        """Carry out the request; the answer's body. Raises the errors of the protocol."""
        started = time.monotonic()
        code = "<error>"
        try:
            async with asyncio.timeout(timeout_seconds):
                response = await self._exchange(request, timeout_seconds)
                body = bytes(await response.read())
            code = str(response.status)
        except TimeoutError:
            message = f"{request}: no answer within {timeout_seconds:g} s"
            raise TransientError(message) from None
        except (aiohttp.ClientError, OSError, ConfigException) as error:
            why = redact(str(error)) or type(error).__name__
            raise TransientError(f"{request}: {why}") from error
        finally:
            self._observe(request, code, time.monotonic() - started)
        if response.status >= 300:
            raise self._refusal(request, response, body)
        self._rights.used(request.right)
        if response.status == 201:
            self._rights.used(replace(request.right, verb="create"))
        return body

    def _refusal(self, request: Request, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
        error = error_for(str(request), request.right, response.status, response.headers, body)
        if isinstance(error, ForbiddenError) and error.right is not None:
            self._rights.denied(error.right)
        return error

    async def _exchange(self, request: Request, timeout_seconds: float) -> aiohttp.ClientResponse:
        method, url, headers, body, _ = await self._client.param_serialize(
            method=request.method,
            resource_path=_path(request),
            path_params={"namespace": request.namespace, "name": request.name},
            query_params=list(request.query),
            header_params={"Accept": JSON, "Content-Type": request.content_type},
            body=_written_out(request),
            auth_settings=["BearerToken"],
        )
        answer = await self._client.call_api(
            method, url, headers, body, _request_timeout=timeout_seconds
        )
        response: aiohttp.ClientResponse = answer.response
        return response


def _written_out(request: Request) -> Object | str | None:
    if request.content_type != APPLY_PATCH:
        return request.body
    text = json.dumps(request.body, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _path(request: Request) -> str:
    """The path template; names are filled in, and quoted, by the client."""
    kind = request.kind
    parts = ["apis", kind.group] if kind.group else ["api"]
    parts.append(kind.version)
    if request.namespace is not None:
        parts += ["namespaces", "{namespace}"]
    parts.append(kind.plural)
    if request.name is not None:
        parts.append("{name}")
    if request.subresource is not None:
        parts.append(request.subresource)
    return "/" + "/".join(parts)
