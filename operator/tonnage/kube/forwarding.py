"""A KubeApi in front of another one, to be subclassed by what answers some calls otherwise."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tonnage.api.shard import Shard
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    SERVICES,
)
from tonnage.kube.protocol import Kind, KubeApi, Labels, Listing, Object

SHARDED: Final = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS, DEPLOYMENTS, SERVICES, NODES)
"""What is told apart by shards. Pods are not: those of everybody take GPUs."""

_Objects = list[Object]  # inside the class, `list` is the verb


class ForwardingKubeApi:
    """Hands every call on."""

    def __init__(self, behind: KubeApi) -> None:
        self._behind = behind

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        return await self._behind.get(kind, namespace, name)

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> _Objects:
        """Read all objects with these labels live."""
        return await self._behind.list(kind, namespace, labels)

    async def each(self, wanted: Listing, take: Callable[[Object], object]) -> None:
        """Read objects live, and hand them over one by one."""
        await self._behind.each(wanted, take)

    async def probe(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> None:
        """Find out what is in the way of listing these objects."""
        await self._behind.probe(kind, namespace, labels)

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, limit_bytes: int
    ) -> str:
        """The end of a container's log. Raises NotFoundError when there is none."""
        return await self._behind.pod_log(
            namespace, pod, container, previous=previous, limit_bytes=limit_bytes
        )

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Server-side apply as field manager `tonnage`, forced."""
        return await self._behind.apply(kind, body)

    async def create(self, kind: Kind, body: Object) -> Object:
        """Make an object that nobody has yet, as the first `apply` of it."""
        return await self._behind.create(kind, body)

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of /status as field manager `tonnage-status`, forced."""
        return await self._behind.apply_status(kind, body)

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> None:
        """Delete exactly this object as read."""
        await self._behind.delete(kind, namespace, name, uid, resource_version)

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> None:
        """Set spec.replicas of this object and of no namesake."""
        await self._behind.scale(kind, seen, replicas)

    async def create_event(self, event: Object) -> None:
        """Write an events.k8s.io/v1 Event."""
        await self._behind.create_event(event)


class NamespacedKubeApi(ForwardingKubeApi):
    """The API server as Roles show it: "all namespaces" are these, each asked by itself."""

    def __init__(self, behind: KubeApi, namespaces: tuple[str, ...]) -> None:
        super().__init__(behind)
        self._namespaces = namespaces

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> _Objects:
        """Read all objects with these labels live, of these namespaces."""
        found: _Objects = []
        for place in self._places(kind, namespace):
            found += await super().list(kind, place, labels)
        return found

    async def each(self, wanted: Listing, take: Callable[[Object], object]) -> None:
        """Read objects live, and hand them over one by one, of these namespaces."""
        for place in self._places(wanted.kind, wanted.namespace):
            await super().each(replace(wanted, namespace=place), take)

    async def probe(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> None:
        """Find out what is in the way of listing these objects, in each of these namespaces."""
        for place in self._places(kind, namespace):
            await super().probe(kind, place, labels)

    def _places(self, kind: Kind, namespace: str | None) -> tuple[str | None, ...]:
        """Where to ask, one after the other."""
        return self._namespaces if namespace is None and kind.namespaced else (namespace,)


class ShardKubeApi(ForwardingKubeApi):
    """The API server as one of several operators sees it: what it lists is of its shard.

    What is read by its name, and what belongs to one object, is shown whosever it is: an object
    that came from another shard has the children that were made there.
    """

    def __init__(self, behind: KubeApi, shard: Shard) -> None:
        super().__init__(behind)
        self._labels = shard.labels

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> _Objects:
        """Read all objects with these labels live, of this shard where none of one namespace."""
        return await super().list(kind, namespace, self._narrow(kind, namespace, labels))

    async def each(self, wanted: Listing, take: Callable[[Object], object]) -> None:
        """Hand over objects one by one, of this shard where none of one namespace."""
        labels = self._narrow(wanted.kind, wanted.namespace, wanted.labels)
        await super().each(replace(wanted, labels=labels), take)

    async def probe(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> None:
        """Find out what is in the way of listing these objects, of this shard."""
        await super().probe(kind, namespace, self._narrow(kind, namespace, labels))

    def _narrow(self, kind: Kind, namespace: str | None, labels: Labels | None) -> Labels | None:
        if namespace is not None or kind not in SHARDED:
            return labels
        return {**(labels or {}), **self._labels}
