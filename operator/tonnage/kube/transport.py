"""One HTTP exchange with the API server: with a timeout, counted, and failing in known ways."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

from tonnage.api.names import GROUP
from tonnage.api.redact import redact
from tonnage.kube.answers import error_for, parse_object
from tonnage.kube.depth import cut_deep
from tonnage.kube.partial_objects import JSON
from tonnage.kube.protocol import ApiError, ForbiddenError, Kind, Object, TransientError
from tonnage.kube.rights import Right, RightsBook

MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml; charset=utf-8"
"""Server-side apply; the body is JSON, which is YAML, so every API server takes it.

But for two things: JSON's escapes of characters beyond U+FFFF are no YAML, and neither are control
characters that JSON does not escape. So the body is written by us; the charset keeps the client
from writing it itself.
"""

UNPACKED: Final = "identity"
"""As an Accept-Encoding. An API server packs what is large, and that costs it more than sending it;
all nodes of a large fleet are 120 MB. The components of Kubernetes do not ask for that, either
(DisableCompression of client-go)."""

LONGEST_LINE_BYTES: Final = 4 * 1024 * 1024
"""Of a watch; etcd takes no object of more than 1.5 MiB."""

_VERBS: Final[Mapping[str, str]] = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""What is not printable in YAML 1.2 (section 5.1, c-printable), or a line break in YAML 1.1."""


Query = Sequence[tuple[str, str | int | bool]]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of which object, as people and metrics name it, and as HTTP does."""

    verb: str
    method: str
    kind: Kind
    namespace: str | None
    name: str | None
    subresource: str | None = None
    query: Query = ()
    body: Object | None = None
    content_type: str = JSON
    accept: str = JSON

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.kind.kind} {place}".rstrip()

    @property
    def right(self) -> Right:
        """The right that the request needs, in the words of a role."""
        verb = _VERBS.get(self.method) or ("get" if self.name else self.verb)
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
        body = await self.fetch(request, timeout_seconds)
        if request.kind.group == GROUP:  # in other kinds nobody can nest what they like
            body = cut_deep(body.decode(errors="replace")).encode()
        return parse_object(str(request), body)

    async def fetch(self, request: Request, timeout_seconds: float) -> bytes:
        """Carry out the request; the answer's body. Raises the errors of the protocol."""
        _, body = await self._carry_out(
            request, timeout_seconds, timeout_seconds, aiohttp.ClientResponse.read
        )
        return body

    async def lines(self, request: Request, silent_seconds: float) -> AsyncGenerator[bytes, None]:
        """The answer line by line, as it comes, until the server ends it.

        A server that is silent for so long has failed. Raises the errors of the protocol.
        """
        limits = aiohttp.ClientTimeout(sock_read=silent_seconds)
        response, _ = await self._carry_out(request, silent_seconds, limits, _read_refusal)
        try:
            async with aclosing(_lines_of(response)) as lines:
                async for line in lines:
                    yield line
        except ValueError:
            raise TransientError(f"{request}: a line is too long") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(request, error) from error
        finally:
            response.close()

    async def _carry_out(
        self,
        request: Request,
        seconds: float,
        limits: float | aiohttp.ClientTimeout,
        read: Callable[[aiohttp.ClientResponse], Awaitable[bytes]],
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """The answer, and of its body what is read of it within these seconds."""
        started = time.monotonic()
        code = "<error>"
        try:
            async with asyncio.timeout(seconds):
                response = await self._exchange(request, limits)
                body = bytes(await read(response))
            code = str(response.status)
        except TimeoutError:
            raise TransientError(f"{request}: no answer within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ConfigException) as error:
            raise _broken(request, error) from error
        finally:
            self._observe(request, code, time.monotonic() - started)
        if response.status >= 300:
            raise self._refusal(request, response, body)
        self._rights.used(request.right)
        if response.status == 201:
            self._rights.used(replace(request.right, verb="create"))
        return response, body

    def _refusal(self, request: Request, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
        error = error_for(str(request), request.right, response.status, response.headers, body)
        if isinstance(error, ForbiddenError) and error.right is not None:
            self._rights.denied(error.right)
        return error

    async def _exchange(
        self, request: Request, limits: float | aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """The client's own way to here looks through everything for its models, of which there are
        none: that takes half as long as the exchange itself."""
        configuration = self._client.configuration
        headers = {
            **self._client.default_headers,
            "Accept": request.accept,
            "Accept-Encoding": UNPACKED,
            "Content-Type": request.content_type,
        }
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
        if authorization is not None:
            headers["Authorization"] = authorization
        answer = await self._client.call_api(
            request.method,
            configuration.host + _target(request),
            headers,
            _written_out(request),
            _request_timeout=limits,
        )
        response: aiohttp.ClientResponse = answer.response
        return response


async def _lines_of(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Raises ValueError where one is too long, and errors of the connection."""
    begun = b""
    while chunk := await response.content.readany():
        *lines, begun = (begun + chunk).split(b"\n")
        if len(begun) > LONGEST_LINE_BYTES:
            raise ValueError
        for line in lines:
            yield line
    if begun:
        yield begun


async def _read_refusal(response: aiohttp.ClientResponse) -> bytes:
    return await response.read() if response.status >= 300 else b""


def _broken(request: Request, error: Exception) -> TransientError:
    return TransientError(f"{request}: {redact(str(error)) or type(error).__name__}")


def _written_out(request: Request) -> Object | str | None:
    if request.content_type != APPLY_PATCH:
        return request.body
    text = json.dumps(request.body, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _target(request: Request) -> str:
    """Path and query. Names may come from users, so they are quoted."""
    kind = request.kind
    parts = ["apis", kind.group] if kind.group else ["api"]
    parts.append(kind.version)
    if request.namespace is not None:
        parts += ["namespaces", quote(request.namespace, safe="")]
    parts.append(kind.plural)
    if request.name is not None:
        parts.append(quote(request.name, safe=""))
    if request.subresource is not None:
        parts.append(request.subresource)
    path = "/" + "/".join(parts)
    query = [
        (key, str(value).lower() if isinstance(value, bool) else value)
        for key, value in request.query
    ]
    return f"{path}?{urlencode(query)}" if query else path
