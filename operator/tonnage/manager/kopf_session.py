"""The HTTP session of kopf; it records the permissions that kopf's lists and watches need.

It also reports each list: kopf lists when it restarts a watch, and does not report that it has.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final

import aiohttp
import kopf

from tonnage.kube.connection import Credentials
from tonnage.kube.rights import PermissionTracker, Right
from tonnage.kube.transport import IDENTITY_ENCODING
from tonnage.manager.kopf_responses import KopfResponse

_COLLECTION: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)$"
)


def open_session(
    credentials: Credentials, rights: PermissionTracker, listed: Callable[[str], None]
) -> kopf.AiohttpSession:
    """Open a session with these credentials; kopf closes it. `listed` receives a kind's plural."""
    info = _connection_info(credentials)

    async def record(
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        exchange: aiohttp.TraceRequestEndParams,
    ) -> None:
        record_exchange(rights, listed, exchange)

    tracing = aiohttp.TraceConfig()
    tracing.on_request_end.append(record)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers={**info.as_http_headers(), "Accept-Encoding": IDENTITY_ENCODING},
        trace_configs=[tracing],
        response_class=KopfResponse,
    )
    return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)


def record_exchange(
    rights: PermissionTracker,
    listed: Callable[[str], None],
    exchange: aiohttp.TraceRequestEndParams,
) -> None:
    """Record the permission that the request used or lacks: kopf retries a forbidden request for
    ever and only logs it."""
    match = _COLLECTION.search(exchange.url.path)
    if match is None:  # discovery needs none of the operator's permissions
        return
    verb = "watch" if "watch" in exchange.url.query else "list"
    right = Right(verb, match["group"] or "", match["plural"], match["namespace"])
    if exchange.response.status == 403:
        rights.denied(right)
    elif exchange.response.status == 200:
        rights.used(right)
        if verb == "list":
            listed(match["plural"])


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
