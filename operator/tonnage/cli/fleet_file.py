"""The fleet file of `tonnage run`, read as strictly as the one of `tonnage plan --nodes`."""

from datetime import UTC, datetime
from typing import Final

from tonnage.api.shard import shard_of
from tonnage.cli.documents import load_documents
from tonnage.cli.dump import Dump
from tonnage.cli.errors import InputError
from tonnage.cli.fleet_files import read_fleet
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES, PRIORITY_CLASSES
from tonnage.kube.protocol import Object
from tonnage.watch.fleet_file import FleetFileError

_KINDS: Final = (NODES.kind, ACCELERATOR_POOLS.kind, PRIORITY_CLASSES.kind)


def read_fleet_file(path: str) -> list[Object]:
    """Its Nodes, AcceleratorPools and PriorityClasses; other kinds are left out.

    Raises FleetFileError naming the file, the place in it and what is wrong.
    """
    try:
        return _read(path)
    except InputError as error:
        raise FleetFileError(str(error)) from None


def _read(path: str) -> list[Object]:
    found = load_documents(path)
    documents = [document for document in found if document.kind in _KINDS]
    for document in documents:
        if not document.name:
            raise InputError(f"{document.source}: metadata.name is missing, expected its name")
    dump = Dump(documents, "default", datetime.now(UTC))
    for shard in {shard_of(document.body) for document in documents}:
        read_fleet(dump, shard)
    if not dump.bodies(NODES.kind):
        raise InputError(f"{path} holds no Node; write it by `kubectl get nodes -o yaml`")
    return [body for kind in _KINDS for body in dump.bodies(kind)]
