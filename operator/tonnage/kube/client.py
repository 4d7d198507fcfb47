"""The KubeApi and LeaseApi protocols on `kubernetes.aio`: dicts in and out, no models.

Every write calls the gate first, so that a process that lost its lease sends no write, and times
out when the gate says, so that no write leaves while another process may lead. The client retries a
failed read once; the work queue retries everything else, or retries would multiply.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Final, TypeVar

from tonnage import delays
from tonnage.api.names import CHILD_FIELD_MANAGER, STATUS_FIELD_MANAGER
from tonnage.kube.kinds import EVENTS, LEASES, PODS
from tonnage.kube.objects import ObjectParser
from tonnage.kube.pages import fetch_objects, fetch_page, next_page
from tonnage.kube.protocol import (
    LOG_LINES,
    ConflictError,
    ExpiredError,
    InvalidError,
    Kind,
    Labels,
    NotFoundError,
    Object,
    ObjectParts,
    Selection,
    TransientError,
    WatchEvent,
    WriteGate,
    select_labels,
)
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import APPLY_PATCH, JSON, MERGE_PATCH, Query, Request, Transport
from tonnage.kube.write_log import enter_write

PAGE_SIZE: Final = 500
"""Objects per page of a list, as in client-go's pager."""

FULL_PAGE_SIZE: Final = 200
"""Full objects per page: each takes about 80 KiB until its page has been read."""

OBJECTS_PER_STEP: Final = 100
"""Objects handed to the caller before other tasks run: a few milliseconds."""

NO_VERSION: Final = "1"
"""A resourceVersion that no object has: it is etcd's revision of an empty store, and the first
write makes revision 2. An apply with it conflicts with every existing object, and creates a missing
one (apiserver pkg/registry/generic/registry/store.go, Store.Update: it compares the version only
where an object is stored). The contract suite checks that API servers behave so.
"""

PARTIAL_METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header for a list of metadata alone, the part of an object that no user can nest."""

LIST_ATTEMPTS: Final = 3
"""Attempts at a list whose continue token expires."""

LOG_READ_FACTOR: Final = 16
"""The server cuts a log's tail at its end. So the client reads LOG_LINES lines, at most
LOG_READ_FACTOR times the wanted bytes, and keeps the last bytes."""

_Objects = list[Object]  # inside the class, `list` is the method
_T = TypeVar("_T")


class AioKubeApi:
    """KubeApi of one API server; all calls share one token bucket. `max_list_bytes` is the longest
    answer of `list`, None for any."""

    def __init__(
        self,
        transport: Transport,
        *,
        before_write: WriteGate,
        bucket: TokenBucket,
        timeout_seconds: float = delays.REQUEST_TIMEOUT,
        max_list_bytes: int | None = None,
    ) -> None:
        self._transport = transport
        self._max_list_bytes = max_list_bytes
        self._before_write = before_write
        self._bucket = bucket
        self._timeout_seconds = timeout_seconds

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        return await _read(self._fetch_object, Request("get", "GET", kind, namespace, name))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Labels | None = None,
    ) -> list[Object]:
        """Read all objects with these labels live; restart where a continue token expired."""
        request = _list_request(Selection(kind, namespace, labels), FULL_PAGE_SIZE)
        read = partial(fetch_objects, self._fetch_part, request, self._max_list_bytes)
        for _ in range(LIST_ATTEMPTS - 1):
            with suppress(ExpiredError):
                return await read()
        return await read()

    async def list_first(self, selection: Selection, parts: ObjectParts, limit: int) -> _Objects:
        """Read the first objects of the selection live, at most `limit`, by one request."""
        request = _list_request(selection, limit, _accept_for(parts))
        body, _ = await fetch_page(self._fetch_part, request)
        return [*ObjectParser(selection.kind, parts).page(body).objects]

    async def list_pages(
        self, selection: Selection, parts: ObjectParts, take: Callable[[Object], object]
    ) -> str:
        """Read objects live, page by page, and pass each one to `take`.

        Raises ExpiredError when reading took so long that the caller has to restart the list.
        """
        parser = ObjectParser(selection.kind, parts)
        limit = FULL_PAGE_SIZE if parts is ObjectParts.FULL else PAGE_SIZE
        request = _list_request(selection, limit, _accept_for(parts))
        reading = asyncio.create_task(fetch_page(self._fetch_part, request))
        try:
            while True:
                body, answered = await reading
                page = parser.page(body)
                if page.token:  # the API server makes the next page while the caller takes this one
                    request = next_page(answered, page.token, limit)
                    reading = asyncio.create_task(fetch_page(self._fetch_part, request))
                for start in range(0, len(page.objects), OBJECTS_PER_STEP):
                    for item in page.objects[start : start + OBJECTS_PER_STEP]:
                        take(item)
                    await asyncio.sleep(0)  # lets other tasks run
                if not page.token:
                    return page.version
        finally:
            reading.cancel()

    async def watch(
        self, selection: Selection, parts: ObjectParts, since: str, batch_seconds: float = 0.0
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes since that resourceVersion, until the API server ends the watch. One read takes
        the changes that arrive within `batch_seconds`.

        Raises ExpiredError when the version is too old, and other ApiErrors.
        """
        query: Query = (
            ("watch", True),
            ("allowWatchBookmarks", True),
            ("resourceVersion", since),
            ("timeoutSeconds", delays.WATCH_TIMEOUT),
            *_selectors(selection),
        )
        request = Request("watch", "GET", selection.kind, selection.namespace, None, query=query)
        parser = ObjectParser(selection.kind, parts)
        stream = self._transport.lines(request, delays.WATCH_SILENT, batch_seconds)
        async with aclosing(stream) as lines:
            async for line in lines:
                event = parser.event(line)
                if event.type == "ERROR":
                    raise _watch_error(request, event.object)
                yield event

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Server-side apply as field manager `tonnage`, forced."""
        return await self._apply("apply", kind, body, CHILD_FIELD_MANAGER)

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create an object that does not exist yet, by server-side apply: later applies then own
        its fields, which they would not after a POST."""
        body = body | {"metadata": body["metadata"] | {"resourceVersion": NO_VERSION}}
        return await self._apply("apply", kind, body, CHILD_FIELD_MANAGER, force=False)

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of /status as field manager `tonnage-status`, forced."""
        body = await self._pin_to_uid(kind, body)
        return await self._apply("apply_status", kind, body, STATUS_FIELD_MANAGER, "status")

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> Object | None:
        """Delete exactly this object; the garbage collector deletes its dependents."""
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        }
        request = Request("delete", "DELETE", kind, namespace, name, body=options)
        try:
            answer = await self._write(request)
        except NotFoundError:
            return None
        return answer if _is_kept(answer) else None

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> Object:
        """Set spec.replicas of exactly this object. Returns the stored object."""
        metadata = seen["metadata"]
        return await self._write(
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
        """Write an events.k8s.io/v1 Event, or update the one of the same name."""
        await self._apply("create_event", EVENTS, event, CHILD_FIELD_MANAGER)

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
                *((("timestamps", True),) if timestamps else ()),
            ),
        )
        try:
            log = await _read(self._fetch_bytes, request)
        except InvalidError as error:  # 400: the container has not started, or has no previous one
            raise NotFoundError(str(error)) from error
        return log[-limit_bytes:].decode(errors="replace")

    async def _pin_to_uid(self, kind: Kind, body: Object) -> Object:
        """Make a status conditional on the uid in it, which the API server ignores on /status.

        The server does check the resourceVersion; a body that has one needs no read.
        """
        metadata = body["metadata"]
        if "uid" not in metadata or "resourceVersion" in metadata:
            return body
        live = (await self.get(kind, metadata.get("namespace"), metadata["name"]))["metadata"]
        if live["uid"] != metadata["uid"]:
            raise ConflictError(
                f"apply_status {kind.kind} {metadata['name']}: the object with uid "
                f"{metadata['uid']} is gone; one of the same name has uid {live['uid']}"
            )
        return body | {"metadata": metadata | {"resourceVersion": live["resourceVersion"]}}

    async def _apply(
        self,
        verb: str,
        kind: Kind,
        body: Object,
        manager: str,
        subresource: str | None = None,
        *,
        force: bool = True,
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
                query=(("fieldManager", manager), ("force", force)),
                body=body,
                content_type=APPLY_PATCH,
            )
        )

    async def _write(self, request: Request) -> Object:
        await self._bucket.take()
        # After the wait, during which the process can lose the lease.
        seconds = min(self._timeout_seconds, self._before_write())
        answer = await self._transport.fetch_object(request, seconds)
        enter_write(str(request))
        return answer

    async def _fetch_object(self, request: Request) -> Object:
        await self._bucket.take()
        return await self._transport.fetch_object(request, self._timeout_seconds)

    async def _fetch_bytes(self, request: Request, max_bytes: int | None = None) -> bytes:
        await self._bucket.take()
        return await self._transport.fetch(request, self._timeout_seconds, max_bytes)

    async def _fetch_part(self, request: Request, max_bytes: int | None) -> bytes:
        return await _read(partial(self._fetch_bytes, max_bytes=max_bytes), request)


class AioLeaseApi:
    """LeaseApi of one API server: without a gate, which needs the lease, and without a bucket."""

    def __init__(
        self, transport: Transport, *, timeout_seconds: float = delays.LEASE_TIMEOUT
    ) -> None:
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


def _accept_for(parts: ObjectParts) -> str:
    return PARTIAL_METADATA_LIST if parts is ObjectParts.METADATA else JSON


def _list_request(selection: Selection, limit: int, accept: str = JSON) -> Request:
    """The request for the first page of a list."""
    query = (("limit", limit), *_selectors(selection))
    kind, namespace = selection.kind, selection.namespace
    return Request("list", "GET", kind, namespace, None, query=query, accept=accept)


def _selectors(selection: Selection) -> Query:
    labels = select_labels(selection.labels or {})
    selectors = (("labelSelector", labels), ("fieldSelector", selection.fields))
    return tuple((name, value) for name, value in selectors if value)


def _watch_error(request: Request, status: Object) -> TransientError:
    message = f"{request}: {status.get('code')}: {status.get('message')}"
    return ExpiredError(message) if status.get("code") == 410 else TransientError(message)


def _is_kept(answer: Object) -> bool:
    """Whether the answer to a deletion is an object that still exists. For a deleted object of most
    kinds the API server answers with a Status (apiserver pkg/endpoints/handlers/delete.go)."""
    metadata = answer.get("metadata") or {}
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return answer.get("kind") != "Status" and bool(waits)


async def _read(fetch: Callable[[Request], Awaitable[_T]], request: Request) -> _T:
    """Retry a read once, where that can help soon.

    Without tenacity, which adds a fifth to the cost of a read that succeeds.
    """
    started = time.monotonic()
    try:
        return await fetch(request)
    except TransientError as error:
        wait = delays.READ_RETRY if error.retry_after is None else error.retry_after
        is_late = time.monotonic() - started + wait >= delays.READ_RETRY_WITHIN
        if is_late or isinstance(error, ExpiredError):
            raise
    await asyncio.sleep(wait)
    return await fetch(request)
