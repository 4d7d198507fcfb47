"""The verbs that Tonnage needs of an API server, and the errors with which they fail."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from tonnage.kube.rights import Right

Object = dict[str, Any]
"""A Kubernetes object as the API server writes it. Only this edge of Tonnage uses dicts."""


class Kind(NamedTuple):
    """A resource of the API server: the group, version and plural of its URL, and its kind. A named
    tuple, because each event is compared with several kinds."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The apiVersion of an object."""
        return f"{self.group}/{self.version}" if self.group else self.version


Labels = Mapping[str, str | None]
"""A label selector; None stands for a label that must be absent."""


class ObjectParts(Enum):
    """Which parts of each object the client reads."""

    PARTIAL = auto()
    """Of Nodes, Pods, Events, ResourceSlices and ResourceClaims the fields that `kube.objects`
    declares."""

    METADATA = auto()
    """The identity and the version, of any kind."""

    FULL = auto()
    """Spec and status too: everything but `managedFields`."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a list or a watch: of one kind, in one namespace or (None) in all, with these
    labels and this field selector."""

    kind: Kind
    namespace: str | None = None
    labels: Labels | None = None
    fields: str = ""

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.kind.plural}{place}"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch: its type as on the wire, and the object; for ERROR a Status."""

    type: str
    object: Object


WriteGate = Callable[[], float]
"""Called before each write: returns the seconds that the write may take. Raises NotLeadingError
where this process must not write."""


class ApiError(Exception):
    """A request that failed."""


class NotFoundError(ApiError):
    """404: there is no such object."""


class KindMissingError(NotFoundError):
    """404: the API server does not serve this kind of object at all."""


class ConflictError(ApiError):
    """409: the object is not in the state that the caller expected; read it again."""


class ForbiddenError(ApiError):
    """401 or 403: the operator may not do this; its role or the object's quota must change.

    `right` is the one that its role lacks; None where a missing right is not the cause.
    """

    def __init__(self, message: str, right: Right | None = None) -> None:
        super().__init__(message)
        self.right = right


class NotLeadingError(ApiError):
    """Not sent: this process does not hold the lease, so it must not write."""


class InvalidError(ApiError):
    """400, 413, 415, 422: the API server will never take this object."""


class TooLongError(ApiError):
    """The answer has more bytes than the caller takes."""


class TransientError(ApiError):
    """429, 5xx, a timeout or a broken connection: the same request may go through later.

    `retry_after` is the server's Retry-After in seconds, None where it sent none.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ExpiredError(TransientError):
    """410: a resourceVersion or a continue token is too old; list again from the start. Also for a
    watch that cannot go on from its version."""


LOG_LINES: Final = 1000
"""Lines of a log that one read returns at most."""


class ObjectReader(Protocol):
    """Reads one object by name, from an API server or from files."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        ...


class ClusterReader(ObjectReader, Protocol):
    """Reads a cluster, or a dump of one."""

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> list[Object]:
        """Read all objects with these labels live (paged inside); namespace None means all."""
        ...

    async def list_first(
        self, selection: Selection, parts: ObjectParts, limit: int
    ) -> Sequence[Object]:
        """Read the first objects of the selection live, at most `limit`, by one request."""
        ...

    async def pod_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool,
        limit_bytes: int,
        timestamps: bool = False,
    ) -> str:
        """The end of a container's log: at most LOG_LINES lines, each with its time before it where
        `timestamps` is set. Raises NotFoundError when there is none."""
        ...


class ListWatch(Protocol):
    """What a Reflector needs: the pair of calls that client-go calls ListWatch."""

    async def list_pages(
        self, selection: Selection, parts: ObjectParts, take: Callable[[Object], object]
    ) -> str:
        """Read objects live, page by page, and pass each one to `take`. Returns the
        resourceVersion of the list.

        Raises ExpiredError when reading took so long that the caller has to restart the list.
        """
        ...

    def watch(
        self, selection: Selection, parts: ObjectParts, since: str, batch_seconds: float = 0.0
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes since that resourceVersion, bookmarks included, until the API server ends the
        watch. One read may take the changes that arrive within `batch_seconds`.

        Raises ExpiredError when the version is too old, and other ApiErrors.
        """
        ...


class KubeApi(ClusterReader, ListWatch, Protocol):
    """The API server. Every call has a timeout, and raises only the errors above."""

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Server-side apply as field manager `tonnage`, forced. Returns the stored object."""
        ...

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create an object that does not exist yet, as the first `apply` of it. Returns the stored
        object.

        Raises ConflictError, and changes nothing, where any object has that name.
        """
        ...

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of /status as field manager `tonnage-status`, forced.

        A body with metadata.uid raises ConflictError when the object was recreated meanwhile, one
        with metadata.resourceVersion when it changed at all. Raises NotFoundError.
        """
        ...

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> Object | None:
        """Delete exactly this object as read (uid and version are preconditions) and its children.

        Returns the object where a finalizer keeps it, None where it is gone, also where it was gone
        before. Raises ConflictError when it changed.
        """
        ...

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> Object:
        """Set spec.replicas of exactly this object. Returns the stored object.

        Raises ConflictError when it was recreated, NotFoundError when it is gone.
        """
        ...

    async def create_event(self, event: Object) -> None:
        """Write an events.k8s.io/v1 Event."""
        ...


class LeaseApi(Protocol):
    """Reads and writes Leases for leader election; the same errors as KubeApi."""

    async def get_lease(self, namespace: str, name: str) -> Object:
        """Read a Lease live. Raises NotFoundError."""
        ...

    async def put_lease(self, lease: Object) -> Object:
        """Create the Lease, or replace it when it carries a metadata.resourceVersion.

        Raises ConflictError when it exists already, or has changed since it was read.
        """
        ...


def select_labels(selector: Labels) -> str:
    """A label selector as the API server takes it."""
    return ",".join(
        f"!{key}" if value is None else f"{key}={value}" for key, value in selector.items()
    )


def has_labels(obj: Object, selector: Labels) -> bool:
    """Whether the API server would select this object."""
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())
