"""The HTTP session that kopf lists and watches with; it tells which rights those needed.

It also reports each list: kopf lists when it restarts a watch, and reports neither what was deleted
before nor that it has listed.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final

import aiohttp
import kopf

from tonnage.kube.connection import Credentials
from tonnage.kube.rights import Right, RightsBook
from tonnage.kube.transport import UNPACKED
from tonnage.watch.shallow_answers import ShallowResponse

_COLLECTION: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)$"
)


def open_session(
    credentials: Credentials, rights: RightsBook, listed: Callable[[str], None]
) -> kopf.AiohttpSession:
    """A session with these credentials; kopf closes it. `listed` is told the plural of a kind."""
    info = _connection_info(credentials)

    async def note(
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        exchange: aiohttp.TraceRequestEndParams,
    ) -> None:
        note_exchange(rights, listed, exchange)

    tracing = aiohttp.TraceConfig()
    tracing.on_request_end.append(note)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers={**info.as_http_headers(), "Accept-Encoding": UNPACKED},
        trace_configs=[tracing],
        response_class=ShallowResponse,
    )
    return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)


def note_exchange(
    rights: RightsBook, listed: Callable[[str], None], exchange: aiohttp.TraceRequestEndParams
) -> None:
    """kopf tries again for ever what it may not do, and tells nobody but the log."""
    found = _COLLECTION.search(exchange.url.path)
    if found is None:  # discovery, which needs no right of ours
        return
    verb = "watch" if "watch" in exchange.url.query else "list"
    right = Right(verb, found["group"] or "", found["plural"], found["namespace"])
    if exchange.response.status == 403:
        rights.denied(right)
    elif exchange.response.status == 200:
        rights.used(right)
        if verb == "list":
            listed(found["plural"])


def _connection_info(credentials: Credentials) -> kopf.ConnectionInfo:
    scheme, _, token = (credentials.authorization or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_path,
        insecure=credentials.insecure,
        scheme=scheme or None,
        token=token or None,
        certificate_path=credentials.certificate_path,
        private_key_path=credentials.private_key_path,
    )
