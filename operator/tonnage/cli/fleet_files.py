"""A fleet from files that kubectl wrote, read by the functions that read the cluster's."""

import argparse

from tonnage.api.names import ACCELERATOR_POOL
from tonnage.api.parse import InvalidSpecError
from tonnage.cli.documents import Document, load_documents
from tonnage.cli.errors import InputError
from tonnage.fleet.declared import read_declared_pool
from tonnage.fleet.model import DeclaredPool, FleetSnapshot, GpuPod
from tonnage.fleet.node import read_node
from tonnage.fleet.pod import read_gpu_pod


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """The files that make up a fleet; `-` reads one of them from standard input."""
    parser.add_argument(
        "--nodes",
        required=True,
        metavar="FILE",
        help="the nodes, as `kubectl get nodes -o json` prints them (YAML is read too)",
    )
    parser.add_argument(
        "--pods",
        metavar="FILE",
        help="the pods, as `kubectl get pods -A -o json` prints them (default: those in the file "
        "of the nodes; where it has none, all GPUs are free)",
    )
    parser.add_argument(
        "--pools",
        metavar="FILE",
        help="AcceleratorPools (default: those in the file of the nodes; nodes of no pool are "
        "grouped as the operator discovers them)",
    )


def read_fleet(options: argparse.Namespace) -> FleetSnapshot:
    """The snapshot that placement looks at. Raises InputError naming the file and the object."""
    # One dump may hold all of it: `kubectl get nodes,pods,acceleratorpools -A -o yaml`.
    dump = load_documents(options.nodes)
    nodes = _require(dump, "Node", options.nodes)
    pods = _load_kind(options.pods, "Pod") if options.pods else _of_kind(dump, "Pod")
    pools = (
        _load_kind(options.pools, ACCELERATOR_POOL)
        if options.pools
        else _of_kind(dump, ACCELERATOR_POOL)
    )
    return FleetSnapshot(
        nodes=tuple(read_node(document.body) for document in nodes),
        pods=_read_pods(pods),
        declared_pools=_read_pools(pools),
    )


def _read_pods(documents: list[Document]) -> tuple[GpuPod, ...]:
    pods = (read_gpu_pod(document.body) for document in documents)
    return tuple(pod for pod in pods if pod is not None)


def _read_pools(documents: list[Document]) -> tuple[DeclaredPool, ...]:
    found = []
    for document in documents:
        try:
            pool = read_declared_pool(document.body)
        except InvalidSpecError as error:
            raise InputError(f"{document.file}: {error}") from None
        if pool is not None:
            found.append(pool)
    return tuple(found)


def _load_kind(path: str, kind: str) -> list[Document]:
    return _require(load_documents(path), kind, path)


def _require(documents: list[Document], kind: str, path: str) -> list[Document]:
    """The objects of one kind; a file with objects, but none of them, is a mistake."""
    wanted = _of_kind(documents, kind)
    if documents and not wanted:
        raise InputError(f"{path} holds no {kind}; found {', '.join(_kinds(documents))}")
    return wanted


def _of_kind(documents: list[Document], kind: str) -> list[Document]:
    return [document for document in documents if document.kind == kind]


def _kinds(documents: list[Document]) -> list[str]:
    return sorted({document.kind or "objects without a kind" for document in documents})
