"""Reads the fleet file of `tonnage run` as strictly as `tonnage plan --nodes`."""

from datetime import UTC, datetime
from typing import Final

from tonnage.api.shard import shard_of
from tonnage.cli.errors import InputError
from tonnage.cli.sources.documents import load_documents
from tonnage.cli.sources.dump import Dump
from tonnage.cli.sources.fleet_files import read_fleet
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES, PRIORITY_CLASSES
from tonnage.kube.protocol import Object
from tonnage.manager.fleet_file import FleetFileError

_KINDS: Final = (NODES.kind, ACCELERATOR_POOLS.kind, PRIORITY_CLASSES.kind)


def read_fleet_file(path: str) -> list[Object]:
    """Read its Nodes, AcceleratorPools and PriorityClasses; other kinds are ignored.

    Raises FleetFileError naming the file, the position and the error.
    """
    try:
        return _read(path)
    except InputError as error:
        raise FleetFileError(str(error)) from None


def _read(path: str) -> list[Object]:
    documents = [document for document in load_documents(path) if document.kind in _KINDS]
    dump = Dump(documents, "default", datetime.now(UTC))
    for shard in {shard_of(document.body) for document in documents}:
        read_fleet(dump, shard)
    if not dump.bodies(NODES.kind):
        raise InputError(f"{path} holds no Node; write it by `kubectl get nodes -o yaml`")
    return [body for kind in _KINDS for body in dump.bodies(kind)]
