"""Find the endpoint for an object's long requests.

While one may exist, the object's own status lists it: the operator lists it before it creates it,
and until it has gone, so that no crash leaves a forgotten endpoint.
"""

from collections.abc import Mapping
from typing import Any

from tonnage.api.names import LABEL_CONTEXT
from tonnage.api.status import EndpointStatus
from tonnage.api.workload import Context
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.previous import read_reported


def is_listed(status: Mapping[str, Any]) -> bool:
    """Whether the status says that a long endpoint may exist."""
    return any(endpoint.context is Context.LONG for endpoint in read_endpoints(status))


def read_endpoints(status: Mapping[str, Any]) -> list[EndpointStatus]:
    """Read the endpoints that the status lists."""
    listed = status.get("endpoints")
    raw = listed if isinstance(listed, list) else []
    endpoints = (read_reported(EndpointStatus, one) for one in raw)
    return [endpoint for endpoint in endpoints if endpoint is not None]


def read_context(body: Object) -> Context | None:
    """Read which requests an object serves from its label, set by the operator or the user. Any
    other value is no context."""
    value = (body["metadata"].get("labels") or {}).get(LABEL_CONTEXT)
    return Context(value) if value in list(Context) else None
