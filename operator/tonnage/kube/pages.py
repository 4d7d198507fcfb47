"""Pages of lists, of bounded size.

A user who may create objects may store hundreds of the largest size: gigabytes in one page.
So a page that is too long is requested again with fewer objects, and the next pages grow again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from tonnage.kube.protocol import Object, TooLongError, TransientError
from tonnage.kube.transport import Request, parse_answer

MAX_PAGE_BYTES: Final = 32 * 1024 * 1024
"""Longest page of several objects; 500 nodes have 12 MB. A page of one object has no limit."""

_SHRINK: Final = 8
_GROW: Final = 2
_LIMIT: Final = "limit"

Fetch = Callable[[Request, int | None], Awaitable[bytes]]
"""Sends a request for at most so many bytes. Raises TooLongError and other ApiErrors."""


async def fetch_page(fetch: Fetch, request: Request) -> tuple[bytes, Request]:
    """Fetch the page, or a shorter one; also return the request that was answered."""
    while (limit := _limit_of(request)) > 1:
        try:
            return await fetch(request, MAX_PAGE_BYTES), request
        except TooLongError:
            request = _with_parameter(request, _LIMIT, max(1, limit // _SHRINK))
    return await fetch(request, None), request


async def fetch_objects(fetch: Fetch, request: Request, max_bytes: int | None) -> list[Object]:
    """Fetch the objects of all pages. Raises TransientError for more than `max_bytes`: the list may
    be shorter later."""
    # A list names apiVersion and kind once, not in its items.
    type_meta = {"apiVersion": request.kind.api_version, "kind": request.kind.kind}
    most, total, objects = _limit_of(request), 0, list[Object]()
    while True:
        body, answered = await fetch_page(fetch, request)
        total += len(body)
        if max_bytes is not None and total > max_bytes:
            raise TransientError(f"{request}: the list has more than {max_bytes} bytes")
        page = parse_answer(request, body)
        objects += [type_meta | item for item in page.get("items") or []]
        token = page.get("metadata", {}).get("continue")
        if not token:
            return objects
        request = next_page(answered, token, most)


def next_page(request: Request, token: str, most: int) -> Request:
    """The request for the page after that of `request`, of at most `most` objects."""
    limit = min(most, _GROW * _limit_of(request))
    return _with_parameter(_with_parameter(request, _LIMIT, limit), "continue", token)


def _limit_of(request: Request) -> int:
    return next(int(value) for name, value in request.query if name == _LIMIT)


def _with_parameter(request: Request, name: str, value: str | int) -> Request:
    """The request with this value only: an API server takes the first of several."""
    query = ((key, each) for key, each in request.query if key != name)
    return replace(request, query=(*query, (name, value)))
