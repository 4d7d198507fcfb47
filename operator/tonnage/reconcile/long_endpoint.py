"""Where the endpoint for an object's long requests may be, and what is there.

While there may be one, the object's own status lists it:
it is listed before it is made, and no more after it has gone, so that no crash leaves one behind
that nobody remembers.
"""

from collections.abc import Mapping
from typing import Any

from tonnage.api.names import LABEL_CONTEXT
from tonnage.api.status import EndpointStatus
from tonnage.api.workload import Context
from tonnage.kube.protocol import Object
from tonnage.reconcile.reported import read_reported


def is_listed(status: Mapping[str, Any]) -> bool:
    """Whether the status says that there may be one."""
    return any(found.context is Context.LONG for found in read_endpoints(status))


def read_endpoints(status: Mapping[str, Any]) -> list[EndpointStatus]:
    """The endpoints as they were reported before."""
    listed = status.get("endpoints")
    raw = listed if isinstance(listed, list) else []
    read = (read_reported(EndpointStatus, one) for one in raw)
    return [found for found in read if found is not None]


def read_context(body: Object) -> Context | None:
    """Which requests an object is for by its own label: that of an endpoint that the operator made,
    or that somebody else marked so. Any other word is no context."""
    value = (body["metadata"].get("labels") or {}).get(LABEL_CONTEXT)
    return Context(value) if value in list(Context) else None
