"""HTTP requests to the API server: each has a timeout, metrics, and errors of the protocol."""

import asyncio
import json
import re
import socket
import sys
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
from tonnage.api.text import redact
from tonnage.kube.json_depth import limit_depth
from tonnage.kube.protocol import (
    ApiError,
    ExpiredError,
    ForbiddenError,
    Kind,
    Object,
    TooLongError,
    TransientError,
)
from tonnage.kube.responses import parse_error, parse_object
from tonnage.kube.rights import PermissionTracker, Right

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml; charset=utf-8"
"""Server-side apply; the body is JSON, which is YAML, so every API server takes it.

Two things in JSON are no YAML: escapes of characters beyond U+FFFF, and control characters that
JSON does not escape. So this module encodes the body; the charset keeps the client from doing so.
"""

IDENTITY_ENCODING: Final = "identity"
"""Accept-Encoding of each request. It costs an API server more to compress a large answer than to
send it; all nodes of a large fleet are 120 MB. The components of Kubernetes accept no compression
either (DisableCompression of client-go)."""

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Longest line of a watch. etcd takes no object of more than 1.5 MiB by default, and the API server
writes six bytes of JSON for each `<`, `>`, `&` and control character in it."""

BATCH_BYTES: Final = 512 * 1024
"""A socket's buffer with more than this is read before the batch's time is over: 30 Nodes, or 80
Pods."""

_VERBS: Final[Mapping[str, str]] = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Not printable in YAML 1.2 (section 5.1, c-printable), or a line break in YAML 1.1."""


Query = Sequence[tuple[str, str | int | bool]]


@dataclass(frozen=True, slots=True)
class Request:
    """A request: its verb as logs and metrics name it, and its HTTP method, object and body."""

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
        """The right that the request needs, as a role names it."""
        verb = _VERBS.get(self.method) or ("get" if self.name else self.verb)
        resource = "/".join(filter(None, (self.kind.plural, self.subresource)))
        return Right(verb, self.kind.group, resource, self.namespace)


Observer = Callable[[Request, str, float], None]
"""Called after each request with the request, its HTTP status (or `<error>`), and its seconds."""


class Transport:
    """Sends requests to one API server; `rights` records which rights the server denied."""

    def __init__(
        self, client: ApiClient, observe: Observer, rights: PermissionTracker | None = None
    ) -> None:
        self._client = client
        self._observe = observe
        self._rights = rights or PermissionTracker()

    async def fetch_object(self, request: Request, timeout_seconds: float) -> Object:
        """Send the request and parse the answer. Raises the errors of the protocol."""
        return parse_answer(request, await self.fetch(request, timeout_seconds))

    async def fetch(
        self, request: Request, timeout_seconds: float, max_bytes: int | None = None
    ) -> bytes:
        """Send the request. Returns the answer's body. Raises the errors of the protocol, and
        TooLongError for a body of more than `max_bytes`."""

        async def read(response: aiohttp.ClientResponse) -> bytes:
            return await _read_body(request, response, max_bytes)

        _, body = await self._send(request, timeout_seconds, timeout_seconds, read)
        return body

    async def lines(
        self, request: Request, silent_seconds: float, batch_seconds: float = 0.0
    ) -> AsyncGenerator[bytes, None]:
        """The answer line by line, as it arrives, until the server ends it.

        A server that is silent for `silent_seconds` has failed. One read takes what arrives within
        `batch_seconds`, or BATCH_BYTES: a wake-up costs more CPU than most lines. Raises the errors
        of the protocol; ExpiredError for a line that is too long, because a watch from the same
        version would end at the same line.
        """
        limits = aiohttp.ClientTimeout(sock_read=silent_seconds)
        response, _ = await self._send(request, silent_seconds, limits, _read_error_body)
        try:
            async with aclosing(_lines_of(response, batch_seconds)) as lines:
                async for line in lines:
                    yield line
        except ValueError:
            limit = f"a line has more than {MAX_LINE_BYTES} bytes"
            raise ExpiredError(f"{request}: {limit}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _connection_error(request, error) from error
        finally:
            response.close()

    async def _send(
        self,
        request: Request,
        seconds: float,
        limits: float | aiohttp.ClientTimeout,
        read: Callable[[aiohttp.ClientResponse], Awaitable[bytes]],
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send the request. Returns the response and the part of its body that `read` takes."""
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
            raise _connection_error(request, error) from error
        finally:
            self._observe(request, code, time.monotonic() - started)
        if response.status >= 300:
            raise self._error(request, response, body)
        self._rights.used(request.right)
        if response.status == 201:
            self._rights.used(replace(request.right, verb="create"))
        return response, body

    def _error(self, request: Request, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
        error = parse_error(str(request), request.right, response.status, response.headers, body)
        if isinstance(error, ForbiddenError) and error.right is not None:
            self._rights.denied(error.right)
        return error

    async def _exchange(
        self, request: Request, limits: float | aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Call the client's lowest layer. Its usual methods search each body for its own models, of
        which there are none: that takes half as long as the request itself."""
        configuration = self._client.configuration
        headers = {
            **self._client.default_headers,
            "Accept": request.accept,
            "Accept-Encoding": IDENTITY_ENCODING,
            "Content-Type": request.content_type,
        }
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
        if authorization is not None:
            headers["Authorization"] = authorization
        answer = await self._client.call_api(
            request.method,
            configuration.host + _url_path(request),
            headers,
            _encode_body(request),
            _request_timeout=limits,
        )
        response: aiohttp.ClientResponse = answer.response
        return response


def parse_answer(request: Request, body: bytes) -> Object:
    """Parse an object, or a list of objects. Raises TransientError."""
    if request.kind.group == GROUP:  # other kinds bound the nesting
        body = limit_depth(body.decode(errors="replace")).encode()
    return parse_object(str(request), body)


async def _lines_of(
    response: aiohttp.ClientResponse, batch_seconds: float
) -> AsyncGenerator[bytes, None]:
    """Raises ValueError where a line is too long, and errors of the connection."""
    rest = b""
    seconds = 0.0
    while chunk := await _read_batch(response, seconds):
        seconds = batch_seconds
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError
        for line in lines:
            yield line
    if rest:
        yield rest


async def _read_batch(response: aiohttp.ClientResponse, seconds: float) -> bytes:
    """Read what arrives within `seconds`, or BATCH_BYTES if sooner; if nothing, the next bytes.

    With SO_RCVLOWAT a socket that has fewer bytes wakes no reader. To lower it again makes Linux
    check for bytes (tcp_set_rcvlowat in net/ipv4/tcp.c); no other system promises that.
    """
    connection = response.connection
    transport = None if connection is None else connection.transport
    # Without a transport the response has ended.
    if not seconds or transport is None or sys.platform != "linux":
        return await response.content.readany()
    connected: socket.socket = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, BATCH_BYTES)
    try:
        async with asyncio.timeout(seconds):
            return await response.content.readany()
    except TimeoutError:
        pass
    finally:
        if not transport.is_closing():
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return await response.content.readany()


async def _read_body(
    request: Request, response: aiohttp.ClientResponse, max_bytes: int | None
) -> bytes:
    if max_bytes is None:
        return await response.read()
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            response.close()
            raise TooLongError(f"{request}: the answer has more than {max_bytes} bytes")
    return bytes(body)


async def _read_error_body(response: aiohttp.ClientResponse) -> bytes:
    return await response.read() if response.status >= 300 else b""


def _connection_error(request: Request, error: Exception) -> TransientError:
    return TransientError(f"{request}: {redact(str(error)) or type(error).__name__}")


def _encode_body(request: Request) -> Object | str | None:
    if request.content_type != APPLY_PATCH:
        return request.body
    text = json.dumps(request.body, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _url_path(request: Request) -> str:
    """Path and query, with quoted names: names may come from users."""
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
