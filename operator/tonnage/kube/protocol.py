"""The few verbs that Tonnage needs of an API server, and the few ways in which they fail."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from tonnage.kube.rights import Right

Object = dict[str, Any]
"""A Kubernetes object as the API server writes it. Dicts live at this edge only."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource of the API server: where its objects are found."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As it stands in an object."""
        return f"{self.group}/{self.version}" if self.group else self.version


Labels = Mapping[str, str | None]
"""Labels that objects are selected by; None stands for one that must not be there."""


class Parts(Enum):
    """Which parts of each object are read."""

    PARTIAL = auto()
    """Of Nodes and Pods the fields that `kube.partial_objects` declares."""

    METADATA = auto()
    """The identity and the version, of any kind."""

    FULL = auto()
    """Spec and status too: everything but `managedFields`."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Objects of a kind that a list or a watch asks for: in one namespace or in all of them, with
    these labels and this field selector."""

    kind: Kind
    namespace: str | None = None
    labels: Labels | None = None
    fields: str = ""

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.kind.plural}{place}"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch: its type as on the wire, and the object; that of ERROR is a Status."""

    type: str
    object: Object


Gate = Callable[[], float]
"""Asked before each write: the seconds that it may take. Raises NotLeadingError when it may not be
made at all."""


class ApiError(Exception):
    """A request that the API server did not carry out."""


class NotFoundError(ApiError):
    """404: there is no such object."""


class KindMissingError(NotFoundError):
    """404: the API server does not serve this kind of object at all."""


class ConflictError(ApiError):
    """409: the object is not what the caller believed it was; observe again."""


class ForbiddenError(ApiError):
    """401 or 403: the operator may not do this; its role or the object's quota must change.

    `right` is the one that its role lacks; None where that is not the cause.
    """

    def __init__(self, message: str, right: Right | None = None) -> None:
        super().__init__(message)
        self.right = right


class NotLeadingError(ApiError):
    """Refused before it was sent: this process does not hold the lease, so it must not write."""


class InvalidError(ApiError):
    """400, 413, 415, 422: the API server will never take this object."""


class TransientError(ApiError):
    """429, 5xx, a timeout or a broken connection: the same request may go through later.

    `retry_after` is the server's wish in seconds, None when it has none.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ExpiredError(TransientError):
    """410: a resourceVersion or a continue token is too old; list again from the start."""


class ObjectReader(Protocol):
    """What reading one object by name needs; files can offer it as well as an API server."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        ...


class ClusterReader(ObjectReader, Protocol):
    """What observing needs: a cluster, or a dump of one."""

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Read all objects with these labels live (paged inside); namespace None means all."""
        ...

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, limit_bytes: int
    ) -> str:
        """The end of a container's log. Raises NotFoundError when there is none."""
        ...


class ListWatch(Protocol):
    """What a Reflector needs: the pair of calls that client-go calls ListWatch."""

    async def each(
        self, selection: Selection, parts: Parts, take: Callable[[Object], object]
    ) -> str:
        """Read objects live, page by page, and hand each one over; none is kept. The answer is the
        resourceVersion of the list.

        Raises ExpiredError when reading took so long that the list has to be begun anew.
        """
        ...

    def watch(
        self, selection: Selection, parts: Parts, since: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes since that resourceVersion, bookmarks included, until the API server ends the
        watch.

        Raises ExpiredError when the version is too old, and other ApiErrors.
        """
        ...


class KubeApi(ClusterReader, ListWatch, Protocol):
    """Every call has a timeout, and raises only the errors above."""

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> list[Object]:
        """Read all objects with these labels live (paged inside); namespace None means all."""
        ...

    async def probe(self, selection: Selection) -> None:
        """Find out what is in the way of listing these objects.

        Raises KindMissingError, ForbiddenError, or any other ApiError.
        """
        ...

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Server-side apply as field manager `tonnage`, forced; the answer is the stored object."""
        ...

    async def create(self, kind: Kind, body: Object) -> Object:
        """Make an object that nobody has yet, as the first `apply` of it; the answer is what is
        stored.

        Raises ConflictError, and changes nothing, where there is one of that name, whosever it is.
        """
        ...

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of /status as field manager `tonnage-status`, forced.

        A body with metadata.uid fails with ConflictError when the object was made anew meanwhile,
        one with metadata.resourceVersion when it changed at all. Raises NotFoundError.
        """
        ...

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> Object | None:
        """Delete exactly this object as read (both are preconditions), children after it.

        The answer is what a finalizer keeps of it, None where it is gone. An object that was gone
        already is no error; ConflictError when it changed.
        """
        ...

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> Object:
        """Set spec.replicas of this object and of no namesake; the answer is the stored object.

        Raises ConflictError when it was made anew, NotFoundError when it is gone.
        """
        ...

    async def create_event(self, event: Object) -> None:
        """Write an events.k8s.io/v1 Event."""
        ...


class LeaseApi(Protocol):
    """What leader election needs; the same errors as KubeApi."""

    async def get_lease(self, namespace: str, name: str) -> Object:
        """Read a Lease live. Raises NotFoundError."""
        ...

    async def put_lease(self, lease: Object) -> Object:
        """Create the Lease, or replace it when it carries a metadata.resourceVersion.

        Raises ConflictError when it exists already, or is no longer the one that was read.
        """
        ...
