"""One question to Prometheus and its answer."""

from http.client import HTTPException
from typing import Any, Final

from prometheus_api_client import PrometheusConnect
from requests import Session, Timeout
from requests.exceptions import SSLError
from requests.utils import get_environ_proxies
from urllib3 import Retry
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as ReadingTimeout

from tonnage import __version__
from tonnage.telemetry.access import Access, AccessError
from tonnage.telemetry.bounded_http import BoundedAdapter
from tonnage.telemetry.lifeline import Lifeline
from tonnage.telemetry.outcome import Outcome, UnansweredError

_WHOLE_ANSWERS_ONLY: Final = {"partial_response": "false", "deny_partial_response": "1"}
"""Thanos and VictoriaMetrics, each by its own word, leave out what they do not reach, and say it
only in passing; replicas would look missing. Prometheus and Mimir know no such word."""

_NOT_PROMETHEUS: Final = (ValueError, KeyError, TypeError, RecursionError)
"""What the client ends in where an answer with status 200 is not Prometheus' JSON."""


class Exchange:
    """Asked in a thread, which blocks; given up from any other, and then the thread comes back.

    Nothing is shared with another question: neither connection, nor cookies, nor a token. Only the
    look-up of the name and the connecting cannot be cut short; the system's own bounds hold there.
    """

    def __init__(self, access: Access, deadline_seconds: float) -> None:
        self._access = access
        self._deadline_seconds = deadline_seconds
        self._lifeline = Lifeline()

    def ask(self, query: str) -> Any:
        """The raw result of an instant query. Raises UnansweredError, whatever was wrong."""
        try:
            return self._ask(query)
        except AccessError as error:
            raise UnansweredError(Outcome.FILE_UNREADABLE, str(error)) from None
        except SSLError:
            raise UnansweredError(Outcome.TLS, "no trust in its certificate") from None
        except (Timeout, ReadingTimeout):
            raise UnansweredError(Outcome.TIMEOUT, "no answer in time") from None
        except _NOT_PROMETHEUS:
            raise UnansweredError(Outcome.NOT_UNDERSTOOD, "no JSON of Prometheus") from None
        except (OSError, HTTPError, HTTPException):
            raise UnansweredError(Outcome.UNREACHABLE, "no connection, or a broken one") from None

    def give_up(self) -> None:
        """Let the thread come back; nothing happens where it has."""
        self._lifeline.cut()

    def _ask(self, query: str) -> Any:
        access, seconds = self._access, self._deadline_seconds
        with self._lifeline, Session() as session:
            session.trust_env = False  # ~/.netrc and bundles of variables have no say
            session.proxies = get_environ_proxies(access.address, no_proxy=None)
            session.headers.update(
                {
                    "User-Agent": f"tonnage/{__version__}",
                    "Accept-Encoding": "identity",  # what is small packed may be huge unpacked
                    "Connection": "close",
                    **access.headers,
                }
            )
            client = PrometheusConnect(
                url=access.address, session=session, auth=access.credentials(), retry=Retry(0)
            )
            # After the client, which mounts an adapter of its own at the same place.
            session.mount(access.address, BoundedAdapter(self._lifeline, access.tls()))
            params = {"timeout": f"{seconds:g}s", **_WHOLE_ANSWERS_ONLY}
            return client.custom_query(query, params=params, timeout=seconds)
