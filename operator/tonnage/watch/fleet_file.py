"""A file in the place of nodes and pools, for an operator that may read nothing cluster-scoped.

It is read again when it changes. A mounted ConfigMap changes by a link that is turned, so what is
looked at is the file behind the name. One that cannot be used changes nothing: the objects of the
last good one go on to count.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from tonnage.kube.forwarding import ForwardingKubeApi
from tonnage.kube.labels import has_labels
from tonnage.kube.protocol import Kind, KubeApi, Labels, Listing, Object, TransientError

_log = logging.getLogger(__name__)

_Objects = list[Object]  # inside the class, `list` is the verb


class FleetFileError(Exception):
    """The file cannot be used; the message names it, the place in it, and what is wrong there."""


ReadFleetFile = Callable[[str], list[Object]]
"""From a path to Nodes, AcceleratorPools and PriorityClasses. Raises FleetFileError."""


class FleetFile:
    """The latest objects of the file that could be used; `problem` is what ails the present one."""

    def __init__(self, path: str, read: ReadFleetFile) -> None:
        self.path = path
        self.problem: str | None = f"{path} was not read yet"
        self._read = read
        self._seen: tuple[int, ...] | None = None
        self._objects: list[Object] | None = None

    async def refresh(self) -> bool:
        """Read the file if it is another one than before; whether other objects count now."""
        seen = self._look()
        if seen is not None and seen == self._seen:
            return False
        self._seen = seen
        try:
            # Parsing megabytes of YAML takes seconds, in which the Lease has to be renewed.
            objects = [*map(_unversioned, await asyncio.to_thread(self._read, self.path))]
        except FleetFileError as error:
            self._refuse(str(error))
            return False
        self.problem = None
        changed, self._objects = objects != self._objects, objects
        _log.info("fleet file read", extra={"path": self.path, "objects": len(objects)})
        return changed

    def objects(self, kind: Kind) -> list[Object]:
        """Those of a kind. Raises TransientError while no file could be used yet."""
        if self._objects is None:
            raise TransientError(f"fleet file: {self.problem}")
        return [found for found in self._objects if found["kind"] == kind.kind]

    def _refuse(self, problem: str) -> None:
        if problem != self.problem:
            kept = "nothing is placed" if self._objects is None else "the last good one counts"
            _log.error("fleet file refused, %s: %s", kept, problem)
        self.problem = problem

    def _look(self) -> tuple[int, ...] | None:
        try:
            found = Path(self.path).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _unversioned(obj: Object) -> Object:
    """Who edits what kubectl printed leaves the version as it was, of which that is another one."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}


class FleetFileKubeApi(ForwardingKubeApi):
    """An API server whose cluster-scoped objects stand in the file, where nothing writes them."""

    def __init__(self, behind: KubeApi, file: FleetFile) -> None:
        super().__init__(behind)
        self._file = file

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> _Objects:
        """Read all objects of a kind; cluster-scoped ones are those of the file."""
        if kind.namespaced:
            return await super().list(kind, namespace, labels)
        return [found for found in self._file.objects(kind) if has_labels(found, labels or {})]

    async def each(self, wanted: Listing, take: Callable[[Object], object]) -> None:
        """Hand over objects one by one; cluster-scoped ones are those of the file, and whole."""
        if wanted.kind.namespaced:
            await super().each(wanted, take)
            return
        for found in await self.list(wanted.kind, labels=wanted.labels):
            take(found)

    async def probe(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> None:
        """Find out what is in the way of listing these objects; of those of the file, nothing."""
        if kind.namespaced:
            await super().probe(kind, namespace, labels)
