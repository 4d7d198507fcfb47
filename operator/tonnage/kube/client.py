"""The KubeApi and LeaseApi protocols on `kubernetes.aio`: dicts in and out, no models.

Every write asks the gate first, so that a process that lost its lease writes nothing more. Reads
are tried twice; everything else is retried by the work queue, or retries would multiply.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    stop_before_delay,
)

from tonnage.api.names import CHILD_FIELD_MANAGER, STATUS_FIELD_MANAGER
from tonnage.kube.answers import ExpiredError
from tonnage.kube.journal import enter_write
from tonnage.kube.kinds import EVENTS, LEASES, PODS
from tonnage.kube.protocol import (
    ConflictError,
    InvalidError,
    Kind,
    NotFoundError,
    Object,
    TransientError,
)
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import APPLY_PATCH, MERGE_PATCH, Request, Transport

PAGE_SIZE: Final = 500
"""Objects a page of a list; client-go's pager uses the same."""

READ_ATTEMPTS: Final = 2
READ_SECONDS: Final = 5.0
"""A read that failed is asked again once, and only within this time."""

LIST_ATTEMPTS: Final = 3
"""Times a list is begun anew after its continue token expired."""

LOG_LINES: Final = 1000
LOG_READ_FACTOR: Final = 16
"""The server cuts a log's tail at its end; so many lines are read, in at most so many times the
bytes wanted, and the last of them are kept."""

_Objects = list[Object]  # inside the class, `list` is the verb
_T = TypeVar("_T")


class AioKubeApi:
    """KubeApi of one API server; all calls share one token bucket."""

    def __init__(
        self,
        transport: Transport,
        *,
        before_write: Callable[[], None],
        bucket: TokenBucket,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._transport = transport
        self._before_write = before_write
        self._bucket = bucket
        self._timeout_seconds = timeout_seconds

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        return await _read(self._object, Request("get", "GET", kind, namespace, name))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        where: Callable[[Object], object] | None = None,
    ) -> list[Object]:
        """Read all objects with these labels live; begun anew when it took too long.

        With `where` only objects for which it is true are kept, decided page by page: the pods of
        a large cluster are never in memory at once.
        """
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        begin_anew = AsyncRetrying(
            stop=stop_after_attempt(LIST_ATTEMPTS),
            retry=retry_if_exception_type(ExpiredError),
            reraise=True,
        )
        return await begin_anew(self._all_pages, kind, namespace, selector, where)

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Server-side apply as field manager `tonnage`, forced."""
        return await self._apply("apply", kind, body, CHILD_FIELD_MANAGER)

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of /status as field manager `tonnage-status`, forced."""
        body = await self._pin_to_uid(kind, body)
        return await self._apply("apply_status", kind, body, STATUS_FIELD_MANAGER, "status")

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> None:
        """Delete exactly this object; the garbage collector removes what it owns."""
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        }
        try:
            await self._write(Request("delete", "DELETE", kind, namespace, name, body=options))
        except NotFoundError:
            return

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> None:
        """Set spec.replicas of this object and of no namesake; nothing else of it is touched."""
        metadata = seen["metadata"]
        await self._write(
            Request(
                "scale",
                "PATCH",
                kind,
                metadata["namespace"],
                metadata["name"],
                query=(("fieldManager", CHILD_FIELD_MANAGER),),
                body={"metadata": {"uid": metadata["uid"]}, "spec": {"replicas": replicas}},
                content_type=MERGE_PATCH,
            )
        )

    async def create_event(self, event: Object) -> None:
        """Write an events.k8s.io/v1 Event; one of the same name becomes its next state."""
        await self._apply("create_event", EVENTS, event, CHILD_FIELD_MANAGER)

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, limit_bytes: int
    ) -> str:
        """The end of a container's log. Raises NotFoundError when there is none."""
        request = Request(
            "pod_log",
            "GET",
            PODS,
            namespace,
            pod,
            subresource="log",
            query=(
                ("container", container),
                ("previous", previous),
                ("tailLines", LOG_LINES),
                ("limitBytes", LOG_READ_FACTOR * limit_bytes),
            ),
        )
        try:
            log = await _read(self._bytes, request)
        except InvalidError as error:  # 400: the container has not started, or has no previous one
            raise NotFoundError(str(error)) from error
        return log[-limit_bytes:].decode(errors="replace")

    async def _all_pages(
        self,
        kind: Kind,
        namespace: str | None,
        selector: str,
        where: Callable[[Object], object] | None,
    ) -> _Objects:
        found: _Objects = []
        query: dict[str, str | int] = {"limit": PAGE_SIZE}
        if selector:
            query["labelSelector"] = selector
        while True:
            request = Request("list", "GET", kind, namespace, None, query=tuple(query.items()))
            page = await _read(self._object, request)
            # A list names apiVersion and kind once, not in its items.
            named = {"apiVersion": kind.api_version, "kind": kind.kind}
            items = page.get("items") or []
            found += [named | item for item in items if where is None or where(item)]
            token = page.get("metadata", {}).get("continue")
            if not token:
                return found
            query["continue"] = token

    async def _pin_to_uid(self, kind: Kind, body: Object) -> Object:
        """Make a status conditional on the uid in it, which the API server ignores on /status.

        It does heed the resourceVersion; a caller that gives one spares this read.
        """
        wanted = body["metadata"]
        if "uid" not in wanted or "resourceVersion" in wanted:
            return body
        live = (await self.get(kind, wanted.get("namespace"), wanted["name"]))["metadata"]
        if live["uid"] != wanted["uid"]:
            raise ConflictError(
                f"apply_status {kind.kind} {wanted['name']}: the object with uid {wanted['uid']} "
                f"is gone; one of the same name has uid {live['uid']}"
            )
        return body | {"metadata": wanted | {"resourceVersion": live["resourceVersion"]}}

    async def _apply(
        self, verb: str, kind: Kind, body: Object, manager: str, subresource: str | None = None
    ) -> Object:
        metadata = body["metadata"]
        return await self._write(
            Request(
                verb,
                "PATCH",
                kind,
                metadata.get("namespace"),
                metadata["name"],
                subresource,
                query=(("fieldManager", manager), ("force", True)),
                body=body,
                content_type=APPLY_PATCH,
            )
        )

    async def _write(self, request: Request) -> Object:
        await self._bucket.take()
        # After the wait: the lease can be lost meanwhile.
        self._before_write()
        answer = await self._transport.fetch_object(request, self._timeout_seconds)
        enter_write(str(request))
        return answer

    async def _object(self, request: Request) -> Object:
        await self._bucket.take()
        return await self._transport.fetch_object(request, self._timeout_seconds)

    async def _bytes(self, request: Request) -> bytes:
        await self._bucket.take()
        return await self._transport.fetch(request, self._timeout_seconds)


class AioLeaseApi:
    """LeaseApi of one API server: no gate, because it makes the lease, and no bucket to wait in."""

    def __init__(self, transport: Transport, *, timeout_seconds: float = 3.0) -> None:
        self._transport = transport
        self._timeout_seconds = timeout_seconds

    async def get_lease(self, namespace: str, name: str) -> Object:
        """Read a Lease live. Raises NotFoundError."""
        request = Request("get", "GET", LEASES, namespace, name)
        return await self._transport.fetch_object(request, self._timeout_seconds)

    async def put_lease(self, lease: Object) -> Object:
        """Create or replace the Lease as read. Raises ConflictError."""
        metadata = lease["metadata"]
        namespace = metadata["namespace"]
        if "resourceVersion" in metadata:
            request = Request("update", "PUT", LEASES, namespace, metadata["name"], body=lease)
        else:
            request = Request("create", "POST", LEASES, namespace, None, body=lease)
        return await self._transport.fetch_object(request, self._timeout_seconds)


async def _read(fetch: Callable[[Request], Awaitable[_T]], request: Request) -> _T:
    """A read is repeated once when that can help soon."""
    twice = AsyncRetrying(
        stop=stop_after_attempt(READ_ATTEMPTS) | stop_before_delay(READ_SECONDS),
        wait=_server_wish,
        retry=retry_if_exception_type(TransientError) & retry_if_not_exception_type(ExpiredError),
        reraise=True,
    )
    return await twice(fetch, request)


def _server_wish(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    wish = error.retry_after if isinstance(error, TransientError) else None
    return 0.2 if wish is None else wish
