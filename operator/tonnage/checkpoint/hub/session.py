"""Restrict the redirects and the response sizes of huggingface_hub's HTTP client.

A Hub redirects: weights are on other hosts than their listing. The client follows, so a Hub, or an
attacker in its place, could make the operator request addresses that only the operator reaches
(docs/adr/0036-hub-redirects.md).
"""

import socket
import time
from collections.abc import Iterator
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import httpx
from huggingface_hub import get_session

from tonnage import delays

MAX_ANSWER_BYTES: Final = 64 * 1024**2
"""Most bytes of a response; an index has 24 MiB at most."""

MAX_LISTING_BYTES: Final = 8 * 1024**2
"""Most bytes of a listing, which the client parses into objects; 10,000 files take 4 MB."""

_LISTINGS: Final = "/api/models/"

_IDENTITY: Final = "identity"


class AddressScope(IntEnum):
    """The scope of an address, the narrowest first."""

    HOST = 0
    LINK = 1
    SITE = 2
    GLOBAL = 3


class RefusedAnswerError(httpx.RequestError):
    """The Hub's response redirects to a forbidden address, is compressed or exceeds a limit."""


def guarded_session() -> httpx.Client:
    """Return the client that huggingface_hub shares between its calls, with the guard installed."""
    client = get_session()
    hooks = client.event_hooks
    if guard not in hooks["response"]:
        client.event_hooks = {**hooks, "response": [*hooks["response"], guard]}
        client.headers["Accept-Encoding"] = _IDENTITY  # no decompression bombs
    return client


def guard(response: httpx.Response) -> None:
    """Refuse inward redirects and compressed responses, and limit the others in size and time.

    Raises RefusedAnswerError.
    """
    if (response.headers.get("Content-Encoding") or _IDENTITY).lower() != _IDENTITY:
        raise RefusedAnswerError("it compresses its answer, which was not requested")
    if response.has_redirect_location:
        _check_redirect(response)
    assert isinstance(response.stream, httpx.SyncByteStream), "the client is synchronous"
    is_listing = _LISTINGS in response.request.url.path
    max_bytes = MAX_LISTING_BYTES if is_listing else MAX_ANSWER_BYTES
    response.stream = _BoundedStream(response.stream, max_bytes)


def resolve_scope(host: str) -> AddressScope | None:
    """Return the narrowest scope of a host's addresses, None if the name does not resolve."""
    return min(map(_find_scope, _resolve(host)), default=None)


def _check_redirect(response: httpx.Response) -> None:
    source = response.request.url
    try:
        target = source.join(response.headers["Location"])
    except httpx.InvalidURL:
        return  # httpx refuses it with its own message
    if source.scheme == "https" and target.scheme != "https":
        raise RefusedAnswerError(f"it redirects to {target.host!r} without TLS")
    if target.host == source.host:
        return
    target_scope = resolve_scope(target.host)
    # Behind a proxy, names may not resolve here; a Hub of unknown scope counts as global.
    if target_scope is not None and target_scope < (
        resolve_scope(source.host) or AddressScope.GLOBAL
    ):
        raise RefusedAnswerError(
            f"it redirects to {target.host!r}, which is reached from a narrower network than itself"
        )


def _resolve(host: str) -> list[IPv4Address | IPv6Address]:
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ip_address(str(address[0]).partition("%")[0]) for *_, address in entries]


def _find_scope(address: IPv4Address | IPv6Address) -> AddressScope:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or address.is_unspecified:
        return AddressScope.HOST
    if address.is_link_local or address.is_multicast:
        return AddressScope.LINK
    return AddressScope.GLOBAL if address.is_global else AddressScope.SITE


class _BoundedStream(httpx.SyncByteStream):
    """A limited response body.

    Iteration raises RefusedAnswerError beyond the limit, httpx.ReadTimeout after the deadline.
    """

    def __init__(self, stream: httpx.SyncByteStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._deadline = time.monotonic() + delays.HUB_ANSWER

    def __iter__(self) -> Iterator[bytes]:
        read_bytes = 0
        for chunk in self._stream:
            read_bytes += len(chunk)
            if read_bytes > self._max_bytes:
                raise RefusedAnswerError(f"its answer has more than {self._max_bytes} bytes")
            if time.monotonic() > self._deadline:
                raise httpx.ReadTimeout("the answer as a whole took too long")
            yield chunk

    def close(self) -> None:
        """Release the connection."""
        self._stream.close()
