"""Answers to kopf of which it sees nothing that is deeper than Python can hold.

kopf parses what it lists and watches by itself, and an error there ends the process: the next one
would find the same object, and end too.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp

from tonnage.kube.depth import cut_deep
from tonnage.kube.full_objects import read_full_list
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS

_COLLECTION: Final = f"/{INFERENCE_DEPLOYMENTS.plural}"
"""The one kind whose schema lets users nest what they like."""


class ShallowResponse(aiohttp.ClientResponse):
    """An answer; the session that kopf is given makes it."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Begin to read it."""
        response = await super().start(connection)
        if self.url.path.endswith(_COLLECTION):
            self.content = _ShallowLines(self.content)  # type: ignore[assignment] # stands for it
        return response

    async def json(
        self,
        *,
        encoding: str | None = None,
        loads: Callable[[str], Any] = json.loads,
        content_type: str | None = "application/json",
    ) -> Any:
        """The whole answer; a list without the managers of its objects, which take long to read."""
        if self.url.path.endswith(_COLLECTION):
            read = read_full_list if self.ok else loads  # a refusal is a Status
            return await super().json(
                encoding=encoding,
                loads=lambda text: read(cut_deep(text)),
                content_type=content_type,
            )
        return await super().json(encoding=encoding, loads=loads, content_type=content_type)


class _ShallowLines:
    """A stream of objects, one a line; all else is that of the stream it stands for."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Whole lines, as they come."""
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            lines, end, rest = (rest + chunk).rpartition(b"\n")
            if end:
                yield _cut(lines + end)
        if rest:
            yield _cut(rest)


def _cut(lines: bytes) -> bytes:
    return cut_deep(lines.decode(errors="replace")).encode()
