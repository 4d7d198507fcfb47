"""HTTP responses for kopf: lists without objects, and JSON cut at a depth that Python can parse.

Reflectors list all kinds. kopf needs of a list only the version that it watches from.
kopf parses lists and watches itself, and a parse error ends the process: after a restart, the same
object would end it again.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import aiohttp

from tonnage.kube.json_depth import limit_depth
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS

_COLLECTION: Final = f"/{INFERENCE_DEPLOYMENTS.plural}"
"""The only kind whose schema allows any depth of nesting."""


class KopfResponse(aiohttp.ClientResponse):
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
        """Parse the response; a list as if it had no objects."""
        answer = await super().json(
            encoding=encoding,
            loads=lambda text: loads(limit_depth(text)),
            content_type=content_type,
        )
        return _without_objects(answer) if "items" in answer else answer


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


def _without_objects(listed: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**listed, "items": [], "metadata": {**listed["metadata"], "continue": ""}}
