"""HTTP as far as a question to a neighbour needs it: one connection, one answer, in bounds.

The client library of Prometheus speaks through requests; this adapter is where requests can be
held to bounds that it does not know itself.
"""

import json
import ssl
from contextlib import closing
from io import BytesIO
from typing import Any, Final

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection

from tonnage.telemetry.lifeline import Lifeline
from tonnage.telemetry.outcome import Outcome, UnansweredError

LARGEST_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A series of vllm:cache_config_info has 2 KB, so this is a thousand engines. JSON of this size can
take twenty times as much memory, and some answers are read at once."""

_STATUS_OF_THE_QUERY: Final = frozenset({400, 413, 414, 422, 431})
"""Of Prometheus, and of proxies that find a question too long: one of very many pods."""

_ERRORS_OF_THE_QUERY: Final = frozenset({"bad_data", "execution", "timeout", "canceled"})
"""errorType of Prometheus 3.5 (web/api/v1/api.go) where the query is at fault, not the server."""


class BoundedAdapter(HTTPAdapter):
    """Sends one request on a connection of its own, which `lifeline` can cut.

    Raises UnansweredError for an answer that is no success or larger than the bound. Redirects are
    not followed: the credentials are for this address.
    """

    def __init__(self, lifeline: Lifeline, tls: ssl.SSLContext) -> None:
        self._pool_classes = _pool_classes(lifeline)
        self._tls = tls
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=Retry(0))

    def init_poolmanager(
        self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any
    ) -> None:
        """Connect by our classes."""
        super().init_poolmanager(connections, maxsize, block, ssl_context=self._tls, **pool_kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pool_classes

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> PoolManager:
        """Likewise through a proxy."""
        manager: PoolManager = super().proxy_manager_for(
            proxy, ssl_context=self._tls, **proxy_kwargs
        )
        manager.pool_classes_by_scheme = self._pool_classes
        return manager

    def cert_verify(self, *_: object, **__: object) -> None:
        """Load nothing: the context has the certificates, and demands them."""

    def send(self, request: PreparedRequest, **options: Any) -> Response:  # type: ignore[override]  # the options are requests' own, handed on as they come
        """Send it, and read the answer to its end or to the bound."""
        response = super().send(request, **{**options, "stream": True})
        with closing(response):
            body = response.raw.read(LARGEST_ANSWER_BYTES + 1, decode_content=False)
        if len(body) > LARGEST_ANSWER_BYTES:
            raise UnansweredError(Outcome.TOO_LARGE, "the answer is larger than 2 MiB")
        if response.status_code != 200:
            raise _refusal(response.status_code, body)
        response.raw = BytesIO(body)
        # JSON has no other; requests takes whatever the server names, and some take minutes.
        response.encoding = "utf-8"
        return response


def _pool_classes(lifeline: Lifeline) -> dict[str, type[HTTPConnectionPool]]:
    """urllib3's own, but that the lifeline holds each new socket before anything is said on it."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> Any:
            return lifeline.hold(super()._new_conn())

    class Secure(HTTPSConnection):
        def _new_conn(self) -> Any:
            return lifeline.hold(super()._new_conn())

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _refusal(status: int, body: bytes) -> UnansweredError:
    told = f"status {status}"
    if 300 <= status < 400:
        return UnansweredError(Outcome.REDIRECTED, f"{told}, which is not followed")
    if status in (401, 403):
        return UnansweredError(Outcome.UNAUTHORIZED, told)
    if status in _STATUS_OF_THE_QUERY or _error_type(body) in _ERRORS_OF_THE_QUERY:
        return UnansweredError(Outcome.QUERY_REFUSED, told)
    return UnansweredError(Outcome.HTTP_ERROR, told)


def _error_type(body: bytes) -> str | None:
    """What Prometheus says of its own error; None where somebody else speaks."""
    try:
        match json.loads(body):
            case {"status": "error", "errorType": str(found)}:
                return found
    except (ValueError, RecursionError):
        pass
    return None
