"""A file in the place of nodes and pools, for an operator that may read nothing cluster-scoped.

It is read again when it changes. A mounted ConfigMap changes by a link that is turned, so the file
behind the name is checked. A file that cannot be used changes nothing: the objects of the last good
one stay in the stores.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tonnage.informers.store import Store
from tonnage.kube.labels import has_labels
from tonnage.kube.protocol import Kind, Labels, Object, TransientError

_log = logging.getLogger(__name__)


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
        self._reads = 0

    async def refresh(self) -> bool:
        """Read the file if it is another one than before; whether other objects count now."""
        seen = self._look()
        if seen is not None and seen == self._seen:
            return False
        self._seen = seen
        try:
            # Parsing megabytes of YAML takes seconds, in which the Lease has to be renewed.
            objects = [*map(_identified, await asyncio.to_thread(self._read, self.path))]
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
        return [obj for obj in self._objects if obj["kind"] == kind.kind]

    def fill(self, store: Store[Any], kind: Kind, labels: Labels) -> None:
        """Make a store what the file says of a kind. Raises TransientError while no file could be
        used yet."""
        self._reads += 1
        version = str(self._reads)
        listing = store.begin_list()
        for obj in self.objects(kind):
            if has_labels(obj, labels):
                metadata = {**obj["metadata"], "resourceVersion": version}
                listing.take({**obj, "metadata": metadata})
        listing.end(version)

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


def _identified(obj: Object) -> Object:
    """The object as an API server would identify it. Whoever edits what kubectl printed leaves the
    version as it was, and a file written by hand has no uid."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    uid = metadata.get("uid") or f"{obj['kind']}/{metadata['name']}"
    return {**obj, "metadata": {**metadata, "uid": uid, "resourceVersion": ""}}
