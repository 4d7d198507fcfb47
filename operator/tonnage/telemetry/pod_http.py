"""GET requests to pods.

A pod runs a user's image, so its answer is untrusted: it has a deadline and a size limit, it is not
decompressed, and redirects are not followed.
"""

from dataclasses import dataclass
from typing import Final

import aiohttp

OK: Final = 200

FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""What a request to a pod raises where it gives no answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer. `body` is empty for another status than 200, and None where it is too large."""

    status: int
    body: bytes | None


def open_session() -> aiohttp.ClientSession:
    """Open a session for requests to pods."""
    return aiohttp.ClientSession(auto_decompress=False)


async def fetch_page(
    session: aiohttp.ClientSession, url: str, accept: str, seconds: float, most_bytes: int
) -> Page | None:
    """Fetch a page; None where the pod gives no answer in time. Never raises."""
    try:
        async with session.get(
            url,
            allow_redirects=False,
            headers={"Accept": accept, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=seconds),
        ) as response:
            if response.status != OK:
                return Page(response.status, b"")
            body = await response.content.read(most_bytes + 1)
            while len(body) <= most_bytes and (more := await response.content.read(most_bytes)):
                body += more
    except FAILURES:
        return None
    return Page(OK, body if len(body) <= most_bytes else None)
