"""Reads the fleet from files in place of a cluster, as the operator reads it."""

import argparse
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

from tonnage.api.names import ACCELERATOR_POOL
from tonnage.api.parse import InvalidSpecError
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.cli.errors import InputError
from tonnage.cli.sources.documents import Document, load_documents
from tonnage.cli.sources.dump import Dump
from tonnage.fleet.dra.read import read_claim, read_device_class, read_slice
from tonnage.fleet.model import DeclaredPool, FleetSnapshot
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.kube.kinds import (
    COMPUTE_DOMAINS,
    DEVICE_CLASSES,
    LEADER_WORKER_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.scheduling.reservations import read_reservations

_Part = TypeVar("_Part")

_FLAGS: Final = {"nodes": "Node", "pods": "Pod", "pools": ACCELERATOR_POOL}
"""Flags that name a file, and the kind that the file must hold."""

_HOW_TO_WRITE: Final = {
    "nodes": "write it by `kubectl get nodes -o yaml`, or without a cluster by hand as "
    "docs/adding-an-accelerator.md shows",
    "pods": "write it by `kubectl get pods -A -o yaml`",
    "pools": "write it by `kubectl get apool -o yaml`",
}
"""How to get the file of each flag."""


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files that describe a cluster; `-` reads one of them from standard input."""
    parser.add_argument(
        "--nodes",
        metavar="FILE",
        help="the nodes, as `kubectl get nodes -o yaml` prints them (JSON is read too), with "
        "resourceslices, resourceclaims and deviceclasses where DRA drivers publish the GPUs; "
        "without it the cluster of the kubeconfig is read",
    )
    parser.add_argument(
        "--pods",
        metavar="FILE",
        help="the pods, as `kubectl get pods -A -o yaml` prints them (default: those in the file "
        "of the nodes; where it has none, all GPUs are free)",
    )
    parser.add_argument(
        "--pools",
        metavar="FILE",
        help="the AcceleratorPools, as `kubectl get apool -o yaml` prints them (default: those in "
        "the file of the nodes; nodes of no declared pool are grouped as the operator does)",
    )


def add_kinds_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flags for a cluster without a kind that placement asks for."""
    parser.add_argument(
        "--without-leaderworkerset",
        action="store_true",
        help="plan for a cluster without LeaderWorkerSet, where each replica runs on one node "
        "(default: a cluster in files has it)",
    )
    parser.add_argument(
        "--without-compute-domains",
        action="store_true",
        help="plan for a cluster without ComputeDomains, or an operator without its flag "
        "--compute-domains: pools that declare computeDomain run each replica on one node "
        "(default: a cluster in files has them, and the operator has the flag)",
    )


def group_kinds(options: argparse.Namespace, served: Collection[Kind]) -> frozenset[Kind]:
    """The kinds for replicas on several nodes to plan with, of those that the cluster has."""
    without = {
        LEADER_WORKER_SETS: options.without_leaderworkerset,
        COMPUTE_DOMAINS: options.without_compute_domains,
    }
    return frozenset(kind for kind in served if not without[kind])


def load_cluster(
    options: argparse.Namespace, live: Sequence[Document] | None = None
) -> list[Document]:
    """The objects of the files, and those objects of `live` whose kinds no file has.

    One dump may hold all objects; `tonnage plan --help` shows how to make it.
    Raises InputError naming the file.
    """
    if live is None and options.nodes is None:
        raise InputError("--pods and --pools need --nodes, or a cluster to read")
    documents = list(live or ())
    for flag, kind in _FLAGS.items():
        path = getattr(options, flag)
        if path is not None:
            from_file = _require_kind(load_documents(path), flag, path)
            replaced = {kind, *(document.kind for document in from_file)}
            kept = [document for document in documents if document.kind not in replaced]
            documents = kept + from_file
    return documents


def read_fleet(dump: Dump, shard: Shard = UNNAMED_SHARD) -> FleetSnapshot:
    """The input of placement, for the objects of one shard. Raises InputError naming the file and
    the object."""
    return FleetSnapshot(
        nodes=tuple(read_node(node) for node in dump.bodies("Node") if shard.has(node)),
        pods=_read_all(dump.bodies("Pod"), read_gpu_pod),
        reservations=tuple(read_reservations(dump.workloads())),
        declared_pools=_read_pools(
            document for document in dump.documents(ACCELERATOR_POOL) if shard.has(document.body)
        ),
        shard=shard,
        slices=_read_all(dump.bodies(RESOURCE_SLICES.kind), read_slice),
        claims=_read_all(dump.bodies(RESOURCE_CLAIMS.kind), read_claim),
        device_classes=frozenset(_read_all(dump.bodies(DEVICE_CLASSES.kind), read_device_class))
        or None,
    )


def _read_all(
    bodies: Iterable[Object], read: Callable[[Object], _Part | None]
) -> tuple[_Part, ...]:
    return tuple(part for part in map(read, bodies) if part is not None)


def _read_pools(documents: Iterable[Document]) -> tuple[DeclaredPool, ...]:
    pools = []
    for document in documents:
        try:
            pool = read_declared_pool(document.body)
        except InvalidSpecError as error:
            raise InputError(f"{document.file}: {error}") from None
        if pool is not None:
            pools.append(pool)
    return tuple(pools)


def _require_kind(documents: list[Document], flag: str, path: str) -> list[Document]:
    """Return the documents. Raises InputError if a file has objects, but none of that kind."""
    kind = _FLAGS[flag]
    if documents and not _of_kind(documents, kind):
        raise InputError(
            f"--{flag} {path} holds no {kind}, but {', '.join(_kinds(documents))}: "
            f"{_HOW_TO_WRITE[flag]}"
        )
    return documents


def _of_kind(documents: list[Document], kind: str) -> list[Document]:
    return [document for document in documents if document.kind == kind]


def _kinds(documents: list[Document]) -> list[str]:
    return sorted({document.kind or "objects without a kind" for document in documents})
