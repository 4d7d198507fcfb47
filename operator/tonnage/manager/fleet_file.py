"""A file with nodes and pools, for an operator without cluster-scoped permissions.

The operator reads the file again when it changes. A mounted ConfigMap changes by replacing a
symlink, so the link's target is compared. An invalid file changes nothing: the objects of the last
valid one stay in the stores.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tonnage.informers.store import Store
from tonnage.kube.protocol import Kind, Labels, Object, TransientError, has_labels

_log = logging.getLogger(__name__)


class FleetFileError(Exception):
    """The file is invalid; the message has its path, the position and the error."""


ReadFleetFile = Callable[[str], list[Object]]
"""Reads Nodes, AcceleratorPools and PriorityClasses from a path. Raises FleetFileError."""


class FleetFile:
    """The objects of the last valid file; `problem` is the error of the current one, or None."""

    def __init__(self, path: str, read: ReadFleetFile) -> None:
        self.path = path
        self.problem: str | None = f"{path} has not been read yet"
        self._read = read
        self._file_version: tuple[int, ...] | None = None
        self._objects: list[Object] | None = None
        self._fills = 0

    async def refresh(self) -> bool:
        """Read the file if it has changed; return whether its objects have changed."""
        file_version = self._stat()
        if file_version is not None and file_version == self._file_version:
            return False
        self._file_version = file_version
        try:
            # Parsing megabytes of YAML takes seconds, during which the Lease must be renewed.
            objects = [*map(_with_identity, await asyncio.to_thread(self._read, self.path))]
        except FleetFileError as error:
            self._reject(str(error))
            return False
        self.problem = None
        changed, self._objects = objects != self._objects, objects
        _log.info("fleet file read", extra={"path": self.path, "objects": len(objects)})
        return changed

    def objects(self, kind: Kind) -> list[Object]:
        """The objects of a kind. Raises TransientError before the first valid file."""
        if self._objects is None:
            raise TransientError(f"fleet file: {self.problem}")
        return [obj for obj in self._objects if obj["kind"] == kind.kind]

    def fill(self, store: Store[Any], kind: Kind, labels: Labels) -> None:
        """Replace the objects in a store by those of the file. Raises TransientError before the
        first valid file."""
        self._fills += 1
        version = str(self._fills)
        listing = store.begin_list()
        for obj in self.objects(kind):
            if has_labels(obj, labels):
                metadata = {**obj["metadata"], "resourceVersion": version}
                listing.take({**obj, "metadata": metadata})
        listing.end(version)

    def _reject(self, problem: str) -> None:
        if problem != self.problem:
            is_first = self._objects is None
            effect = "waiting for a valid one" if is_first else "keeping the last valid one"
            _log.error("fleet file is invalid, %s: %s", effect, problem)
        self.problem = problem

    def _stat(self) -> tuple[int, ...] | None:
        try:
            stat = Path(self.path).stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _with_identity(obj: Object) -> Object:
    """Add a uid, which a file written by hand lacks, and drop the resourceVersion, which does not
    change when a user edits kubectl's output."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    uid = metadata.get("uid") or f"{obj['kind']}/{metadata['name']}"
    return {**obj, "metadata": {**metadata, "uid": uid, "resourceVersion": ""}}
