"""Instant queries to a Prometheus or a compatible server (Thanos, Mimir, VictoriaMetrics).

The server may be absent, slow or hostile, and no replica depends on it. So each query has one
deadline and a limit on the answer's bytes, credentials go to one address only, and no message
quotes the answer: a server may repeat the credentials that it received.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from enum import StrEnum
from http.client import HTTPException
from io import BytesIO
from threading import Lock
from typing import Any, Final

import msgspec
from prometheus_api_client import PrometheusConnect
from requests import PreparedRequest, Response, Session, Timeout
from requests.adapters import HTTPAdapter
from requests.exceptions import SSLError
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as ReadTimeout

from tonnage import __version__
from tonnage.telemetry.access import Access, AccessError
from tonnage.telemetry.series import NotUnderstoodError, Series, read_vector

_log = logging.getLogger(__name__)

MAX_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A thousand engines: a series of vllm:cache_config_info has 2 KB. JSON of this size can take
twenty times as much memory, and `_THREADS` answers may arrive at once."""

_THREADS: Final = 4
"""The client blocks, so this many queries run concurrently; no more can hang on a server."""

_WHOLE_ANSWERS_ONLY: Final = {"partial_response": "false", "deny_partial_response": "1"}
"""By default Thanos and VictoriaMetrics omit series that they cannot reach, and only warn; replicas
would seem to be missing. Each has its own parameter. Prometheus and Mimir ignore both."""

_SERVER_SHARE: Final = 0.8
"""Share of the deadline in which Prometheus has to end a query. So it says itself that the query is
too slow, which a user's metric may be, and the operator does not take it for a failed server."""

_QUERY_STATUSES: Final = frozenset({400, 413, 414, 422, 431})
"""From Prometheus, and from proxies that reject a long query, one for very many pods."""

_QUERY_ERRORS: Final = frozenset({"bad_data", "execution", "timeout", "canceled"})
"""errorType of Prometheus 3.5 (web/api/v1/api.go) if the query is at fault, not the server."""


class QueryOutcome(StrEnum):
    """The outcome of one query, as logs and metrics show it."""

    ANSWERED = "answered"
    QUERY_REFUSED = "query_refused"
    TOO_LARGE = "too_large"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    FILE_UNREADABLE = "file_unreadable"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    REDIRECTED = "redirected"
    HTTP_ERROR = "http_error"
    NOT_UNDERSTOOD = "not_understood"
    HELD_BACK = "held_back"


_SERVER_IS_UP: Final = frozenset(
    {QueryOutcome.ANSWERED, QueryOutcome.QUERY_REFUSED, QueryOutcome.TOO_LARGE}
)
"""Another query may succeed; after any other outcome it would fail too."""


class UnansweredError(Exception):
    """A query has no valid answer; the message is the operator's own and quotes nothing."""

    def __init__(self, outcome: QueryOutcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class PrometheusSource:
    """Queries one Prometheus; while it fails, sends one query per `retry_seconds`.

    `count` receives the outcome of each query. `clock` gives Unix time, `monotonic` a time that
    never goes back, both in seconds.
    """

    def __init__(
        self,
        access: Access,
        deadline_seconds: float,
        retry_seconds: float,
        count: Callable[[QueryOutcome], None],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._deadline_seconds = deadline_seconds
        self._retry_seconds = retry_seconds
        self._count = count
        self._clock = clock
        self._monotonic = monotonic
        self._retry_at: float | None = None  # None while Prometheus answers
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tonnage-prometheus")

    async def ask(self, query: str) -> tuple[Series, ...] | None:
        """Send an instant query; None if no valid answer arrives in time. Implements Ask."""
        if not self._admits():
            self._count(QueryOutcome.HELD_BACK)
            return None
        try:
            series = await self._ask_in_thread(query)
        except UnansweredError as error:
            self._record(error.outcome, str(error))
            return None
        self._record(QueryOutcome.ANSWERED)
        return series

    def _admits(self) -> bool:
        """The circuit breaker: whether to query now. While one query tries a failed Prometheus, the
        others are held back."""
        if self._retry_at is not None:
            if self._monotonic() < self._retry_at:
                return False
            self._retry_at = self._monotonic() + self._retry_seconds
        return True

    def _record(self, outcome: QueryOutcome, reason: str = "") -> None:
        """Count the outcome, open or close the circuit breaker, and log when that changes it."""
        self._count(outcome)
        was_open = self._retry_at is not None
        details = {"url": self._access.address, "outcome": outcome, "why": reason}
        if outcome not in _SERVER_IS_UP:
            self._retry_at = self._monotonic() + self._retry_seconds
            if not was_open:
                _log.warning("Prometheus does not answer", extra=details)
            return
        self._retry_at = None
        if outcome is not QueryOutcome.ANSWERED:
            _log.debug("Prometheus rejected a query", extra=details)
        if was_open:
            _log.info("Prometheus answers again", extra={"url": self._access.address})

    async def _ask_in_thread(self, query: str) -> tuple[Series, ...]:
        """Query in a thread. Raises UnansweredError, at the deadline at the latest, when the thread
        ends too."""
        connection = CancellableSocket()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await loop.run_in_executor(self._threads, self._answer, connection, query)
        except TimeoutError:
            raise UnansweredError(QueryOutcome.TIMEOUT, "the query timed out") from None
        finally:
            connection.cancel()

    def _answer(self, connection: "CancellableSocket", query: str) -> tuple[Series, ...]:
        """Query and block. Raises UnansweredError for any failure."""
        try:
            return read_vector(self._fetch(connection, query), self._clock())
        except AccessError as error:
            raise UnansweredError(QueryOutcome.FILE_UNREADABLE, str(error)) from None
        except NotUnderstoodError as error:
            raise UnansweredError(QueryOutcome.NOT_UNDERSTOOD, str(error)) from None
        except SSLError:
            reason = "the server does not speak TLS, or its certificate is not trusted"
            raise UnansweredError(QueryOutcome.TLS, reason) from None
        except (Timeout, ReadTimeout):
            raise UnansweredError(QueryOutcome.TIMEOUT, "the query timed out") from None
        except (ValueError, KeyError, TypeError, RecursionError):  # from the client, for other JSON
            reason = "the answer is not Prometheus' JSON"
            raise UnansweredError(QueryOutcome.NOT_UNDERSTOOD, reason) from None
        except (OSError, HTTPError, HTTPException):
            reason = "cannot connect, or the connection broke"
            raise UnansweredError(QueryOutcome.UNREACHABLE, reason) from None

    def _fetch(self, connection: "CancellableSocket", query: str) -> Any:
        """The raw result. Queries share nothing: no connection, no cookie, no token."""
        address, seconds = self._access.address, self._deadline_seconds
        with Session() as session:
            session.trust_env = False  # neither ~/.netrc nor REQUESTS_CA_BUNDLE counts
            session.proxies = get_environ_proxies(address, no_proxy=None)
            session.headers.update(
                {
                    "User-Agent": f"tonnage/{__version__}",
                    "Accept-Encoding": "identity",
                    "Connection": "close",
                    **self._access.headers(),
                }
            )
            client = PrometheusConnect(url=address, session=session)
            adapter = BoundedAdapter(connection, self._access.tls())
            # The client mounts its own adapter at the address. requests rewrites a URL with "/../"
            # or a Unicode name, so such a URL misses that adapter: replace all of them.
            for prefix in tuple(session.adapters):
                session.mount(prefix, adapter)
            params = {"timeout": f"{_SERVER_SHARE * seconds:g}s", **_WHOLE_ANSWERS_ONLY}
            return client.custom_query(query, params=params, timeout=seconds)


class CancellableSocket:
    """A socket that one thread blocks on and another thread shuts down.

    A socket's timeout restarts with each byte, so a server that trickles outlasts it. Before there
    is a socket, the resolver has its own timeout, and connecting has the deadline.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._duplicate: socket.socket | None = None
        self._is_cancelled = False

    def attach(self, connected: socket.socket) -> socket.socket:
        """Remember the socket, and return it. Raises OSError after `cancel`."""
        with self._lock:
            if self._is_cancelled:
                connected.close()
                raise ConnectionAbortedError("the query is cancelled")
            # TLS moves the file descriptor into another object; a duplicate stays usable.
            self._duplicate = connected.dup()
        return connected

    def cancel(self) -> None:
        """Shut the socket down, now or as soon as it is attached."""
        with self._lock:
            self._is_cancelled = True
            if self._duplicate is not None:
                with self._duplicate, suppress(OSError):  # the server may have closed it
                    self._duplicate.shutdown(socket.SHUT_RDWR)


class BoundedAdapter(HTTPAdapter):
    """Sends one request on a socket that `connection` can cancel, and reads a bounded answer.

    Raises UnansweredError for an answer that is too large or not successful. It follows no
    redirect, which would send the credentials to another address.
    """

    def __init__(self, connection: CancellableSocket, tls: ssl.SSLContext) -> None:
        self._connection = connection
        self._tls = tls
        super().__init__(pool_connections=1, pool_maxsize=1)

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        """Add the adapter's TLS context, for a proxy too."""
        host, pool = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {**pool, "ssl_context": self._tls}

    def cert_verify(self, *_: object, **__: object) -> None:
        """Load no other CAs: the context has its own and requires a certificate."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Attach the pool's sockets as they connect, before TLS and before any byte is sent."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        base = pool.ConnectionCls
        attach = self._connection.attach
        members = {"_new_conn": lambda connection: attach(base._new_conn(connection))}
        pool.ConnectionCls = type(base.__name__, (base,), members)
        return pool

    def send(self, request: PreparedRequest, **options: Any) -> Response:  # type: ignore[override]  # the options are requests' own, passed on unchanged
        """Send the request, and read the answer up to the limit. Nothing is decompressed."""
        response = super().send(request, **{**options, "stream": True})
        with closing(response):
            body = response.raw.read(MAX_ANSWER_BYTES + 1, decode_content=False)
        if len(body) > MAX_ANSWER_BYTES:
            raise UnansweredError(QueryOutcome.TOO_LARGE, "the answer is larger than 2 MiB")
        if response.status_code != 200:
            raise refusal(response.status_code, body)
        response.raw = BytesIO(body)
        # JSON is UTF-8; requests would use the server's charset, and some charsets take minutes.
        response.encoding = "utf-8"
        return response


class _ErrorBody(msgspec.Struct):
    """The body of Prometheus' answer to a query that fails."""

    errorType: str = ""  # noqa: N815 - the name in Prometheus' JSON


def refusal(status: int, body: bytes) -> UnansweredError:
    """Classify an unsuccessful answer by its status and by Prometheus' own error."""
    message = f"status {status}"
    if 300 <= status < 400:
        return UnansweredError(QueryOutcome.REDIRECTED, f"{message} is not followed")
    if status in (401, 403):
        return UnansweredError(QueryOutcome.UNAUTHORIZED, message)
    try:
        error_type = msgspec.json.decode(body, type=_ErrorBody).errorType
    except (msgspec.MsgspecError, ValueError, RecursionError):  # the error page of a proxy
        error_type = ""
    if status in _QUERY_STATUSES or error_type in _QUERY_ERRORS:
        return UnansweredError(QueryOutcome.QUERY_REFUSED, message)
    return UnansweredError(QueryOutcome.HTTP_ERROR, message)
