"""HTTP responses for kopf, whose JSON is cut at the depth that Python can parse.

kopf parses lists and watches itself, and a parse error ends the process: after a restart, the same
object would end it again.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp

from tonnage.kube.json_depth import limit_depth
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.objects import read_full_list

_COLLECTION: Final = f"/{INFERENCE_DEPLOYMENTS.plural}"
"""The only kind whose schema allows any depth of nesting."""


class DepthLimitedResponse(aiohttp.ClientResponse):
    """The response class of kopf's session."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Start to read the response."""
        response = await super().start(connection)
        if self.url.path.endswith(_COLLECTION):
            self.content = _ShallowLines(self.content)  # type: ignore[assignment] # wraps it
        return response

    async def json(
        self,
        *,
        encoding: str | None = None,
        loads: Callable[[str], Any] = json.loads,
        content_type: str | None = "application/json",
    ) -> Any:
        """Parse the response; in a list, skip the managed fields, which take long to parse."""
        if self.url.path.endswith(_COLLECTION):
            read = read_full_list if self.ok else loads  # an error is a Status
            return await super().json(
                encoding=encoding,
                loads=lambda text: read(limit_depth(text)),
                content_type=content_type,
            )
        return await super().json(encoding=encoding, loads=loads, content_type=content_type)


class _ShallowLines:
    """A stream of objects, one per line; forwards all other attributes to the wrapped stream."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines as they arrive."""
        remainder = b""
        async for chunk in self._content.iter_chunked(size):
            lines, end, remainder = (remainder + chunk).rpartition(b"\n")
            if end:
                yield _cut(lines + end)
        if remainder:
            yield _cut(remainder)


def _cut(lines: bytes) -> bytes:
    return limit_depth(lines.decode(errors="replace")).encode()
