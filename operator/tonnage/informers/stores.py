"""The stores of all kinds that a reconcile reads, and what each of them keeps."""

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tonnage.api.names import LABEL_OWNER
from tonnage.fleet.model import GpuPod, Node
from tonnage.fleet.node import read_node
from tonnage.fleet.pod import read_gpu_pod
from tonnage.informers.expectations import Expectations
from tonnage.informers.owners import owner_keys
from tonnage.informers.store import Change, Store
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object

OWNERS: Final = "owners"
"""The index by the InferenceDeployments that an object is, belongs to or serves."""

Owner = tuple[str, str]
"""Namespace and name of an InferenceDeployment."""

OnChange = Callable[[Kind, Change[Any]], None]


@dataclass(frozen=True, slots=True)
class PodEntry:
    """What is kept of a Pod: the GPUs that it holds, and all of it where it is the operator's."""

    gpus: GpuPod | None
    packed: bytes | None


class Stores:
    """One store a kind. `on_change` is called after each change, with the kind; `clock` is
    monotonic, in seconds."""

    def __init__(
        self,
        on_change: OnChange = lambda kind, change: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        def notify(kind: Kind) -> Callable[[Change[Any]], None]:
            return lambda change: on_change(kind, change)

        def packed(kind: Kind) -> Store[bytes]:
            indexes = {OWNERS: lambda obj: owner_keys(kind, obj)}
            return Store(
                pack,
                indexes=indexes,
                on_change=notify(kind),
                expectations=Expectations(clock),
            )

        self.inference_deployments = packed(INFERENCE_DEPLOYMENTS)
        self.pools = packed(ACCELERATOR_POOLS)
        self.deployments = packed(DEPLOYMENTS)
        self.services = packed(SERVICES)
        self.pods: Store[PodEntry] = Store(
            _read_pod,
            indexes={OWNERS: lambda obj: owner_keys(PODS, obj)},
            on_change=notify(PODS),
            expectations=Expectations(clock),
        )
        self.nodes: Store[Node] = Store(
            read_node, on_change=notify(NODES), expectations=Expectations(clock)
        )
        self._packed: Final = {
            INFERENCE_DEPLOYMENTS: self.inference_deployments,
            ACCELERATOR_POOLS: self.pools,
            DEPLOYMENTS: self.deployments,
            SERVICES: self.services,
        }
        self._stores: Final[Mapping[Kind, Store[Any]]] = {
            **self._packed,
            PODS: self.pods,
            NODES: self.nodes,
        }

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All kinds that are kept."""
        return tuple(self._stores)

    def of(self, kind: Kind) -> Store[Any]:
        """The store of a kind. Raises KeyError for a kind that is not kept."""
        return self._stores[kind]

    # Reading objects

    def lookup(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """An object of a kind that is kept whole; None where there is none."""
        packed = self._packed[kind].get(namespace, name)
        return None if packed is None else unpack(packed)

    def owned(self, kind: Kind, owner: Owner) -> list[Object]:
        """The Deployments, Services or Pods that belong to an InferenceDeployment, by their label
        or their controller."""
        if kind == PODS:
            pods = self.pods.by_index(OWNERS, owner)
            return [unpack(pod.packed) for pod in pods if pod.packed is not None]
        return [unpack(each) for each in self._packed[kind].by_index(OWNERS, owner)]

    def objects(self, kind: Kind) -> Iterable[Object]:
        """All objects of a kind that is kept whole, one at a time."""
        return map(unpack, self._packed[kind].values())

    def owners(self) -> Sequence[Owner]:
        """Every InferenceDeployment, and every name that an object of the operator belongs to."""
        known: set[Any] = set(self.inference_deployments.places())
        for store in (self.deployments, self.services):
            known |= store.index_values(OWNERS)
        return sorted(known)

    # Own writes

    def write_in_flight(
        self, kind: Kind, namespace: str | None, name: str
    ) -> AbstractContextManager[None]:
        """While the operator writes this object, its events wait until the block ends."""
        store = self._packed.get(kind)
        return nullcontext() if store is None else store.write_in_flight(namespace, name)

    def put_written(self, kind: Kind, obj: Object) -> None:
        """Keep the answer to an own write; of a kind that is not kept, nothing."""
        if (store := self._packed.get(kind)) is not None:
            store.put_written(obj)

    def remove_deleted(self, kind: Kind, namespace: str | None, name: str, uid: str) -> None:
        """Forget an object that the API server has deleted at the operator's request."""
        if (store := self._packed.get(kind)) is not None:
            store.remove_deleted(namespace, name, uid)


def pack(obj: Object) -> bytes:
    """An object in a tenth of the memory that it takes as Python objects; managedFields, which
    nothing reads, are left out."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return zlib.compress(msgspec.json.encode({**obj, "metadata": metadata}), level=1)


def unpack(packed: bytes) -> Object:
    """The object again: a copy that may be changed."""
    obj: Object = msgspec.json.decode(zlib.decompress(packed))
    return obj


def _read_pod(obj: Object) -> PodEntry:
    labels = obj["metadata"].get("labels") or {}
    return PodEntry(read_gpu_pod(obj), pack(obj) if LABEL_OWNER in labels else None)
