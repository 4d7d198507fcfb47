"""Changes a spec for a person, with that person's credentials.

The operator itself writes to no object of a user.
"""

from collections.abc import Mapping
from typing import Any, Final

from tonnage import delays
from tonnage.kube.protocol import Kind, Object
from tonnage.kube.transport import MERGE_PATCH, Request, Transport

EDIT_FIELD_MANAGER: Final = "kubectl-tonnage"


class SpecEditor:
    """Reads objects of one API server and changes their specs."""

    def __init__(
        self, transport: Transport, *, timeout_seconds: float = delays.REQUEST_TIMEOUT
    ) -> None:
        self._transport = transport
        self._timeout_seconds = timeout_seconds

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        request = Request("get", "GET", kind, namespace, name)
        return await self._transport.fetch_object(request, self._timeout_seconds)

    async def change(self, kind: Kind, seen: Object, fields: Mapping[str, Any]) -> Object:
        """Merge the fields into the spec; None removes a field. The API server refuses a field that
        it does not know, instead of dropping it.

        `seen` is the object as it was read. Raises ConflictError when it has changed since.
        """
        metadata = seen["metadata"]
        request = Request(
            "patch",
            "PATCH",
            kind,
            metadata["namespace"],
            metadata["name"],
            query=(("fieldManager", EDIT_FIELD_MANAGER), ("fieldValidation", "Strict")),
            body={
                "metadata": {"resourceVersion": metadata["resourceVersion"]},
                "spec": dict(fields),
            },
            content_type=MERGE_PATCH,
        )
        return await self._transport.fetch_object(request, self._timeout_seconds)
