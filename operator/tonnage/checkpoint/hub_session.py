"""huggingface_hub's own HTTP client, held to where it may be led and to how much it takes.

A Hub answers with redirects: weights lie on other hosts than their listing. The client follows
them, so a Hub, or who can answer in its place, could have the operator ask addresses that only the
operator reaches (docs/adr/0036-redirects-never-lead-inwards.md).
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
"""Most that is taken of any answer; an index has 24 MiB at most."""

MAX_LISTING_BYTES: Final = 8 * 1024**2
"""Most of a listing, which becomes objects; one of 10,000 files has 4 MB."""

_LISTINGS: Final = "/api/models/"

_IDENTITY: Final = "identity"


class Reach(IntEnum):
    """From where an address can be reached, the narrowest first."""

    MACHINE = 0
    LINK = 1
    SITE = 2
    WORLD = 3


class RefusedAnswerError(httpx.RequestError):
    """The Hub's answer leads where nobody may be led, or is more than is taken of any."""


def guarded_session() -> httpx.Client:
    """The client that huggingface_hub shares between its calls, guarded."""
    client = get_session()
    hooks = client.event_hooks
    if guard not in hooks["response"]:
        client.event_hooks = {**hooks, "response": [*hooks["response"], guard]}
        client.headers["Accept-Encoding"] = _IDENTITY  # what is small packed may be huge unpacked
    return client


def guard(response: httpx.Response) -> None:
    """Refuse what leads inwards or comes packed, and bound the rest. Raises RefusedAnswerError."""
    if (response.headers.get("Content-Encoding") or _IDENTITY).lower() != _IDENTITY:
        raise RefusedAnswerError("it packs its answer, which was not asked for")
    if response.has_redirect_location:
        _check_redirect(response)
    assert isinstance(response.stream, httpx.SyncByteStream), "of a client that is not async"
    is_listing = _LISTINGS in response.request.url.path
    most = MAX_LISTING_BYTES if is_listing else MAX_ANSWER_BYTES
    response.stream = _Bounded(response.stream, most)


def reach_of(host: str) -> Reach | None:
    """The narrowest reach of the addresses of a host; None where its name has none here."""
    return min(map(_reach, _addresses(host)), default=None)


def _check_redirect(response: httpx.Response) -> None:
    here = response.request.url
    try:
        there = here.join(response.headers["Location"])
    except httpx.InvalidURL:
        return  # httpx refuses it in its own words
    if here.scheme == "https" and there.scheme != "https":
        raise RefusedAnswerError(f"it redirects to {there.host!r} without TLS")
    if there.host == here.host:
        return
    wanted = reach_of(there.host)
    # Behind a proxy names may have no address here; a Hub of unknown reach is one of the world.
    if wanted is not None and wanted < (reach_of(here.host) or Reach.WORLD):
        raise RefusedAnswerError(
            f"it redirects to {there.host!r}, which is reached from a narrower network than itself"
        )


def _addresses(host: str) -> list[IPv4Address | IPv6Address]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ip_address(str(address[0]).partition("%")[0]) for *_, address in found]


def _reach(address: IPv4Address | IPv6Address) -> Reach:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or address.is_unspecified:
        return Reach.MACHINE
    if address.is_link_local or address.is_multicast:
        return Reach.LINK
    return Reach.WORLD if address.is_global else Reach.SITE


class _Bounded(httpx.SyncByteStream):
    """A body up to the bounds. Reading on raises RefusedAnswerError or httpx.ReadTimeout."""

    def __init__(self, stream: httpx.SyncByteStream, most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes
        self._deadline = time.monotonic() + delays.HUB_ANSWER

    def __iter__(self) -> Iterator[bytes]:
        taken = 0
        for chunk in self._stream:
            taken += len(chunk)
            if taken > self._most_bytes:
                raise RefusedAnswerError(f"its answer has more than {self._most_bytes} bytes")
            if time.monotonic() > self._deadline:
                raise httpx.ReadTimeout("the answer as a whole took too long")
            yield chunk

    def close(self) -> None:
        """Let the connection go."""
        self._stream.close()
