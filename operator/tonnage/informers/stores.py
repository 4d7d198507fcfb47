"""The stores of all kinds that a reconcile reads."""

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from tonnage.api.names import LABEL_OWNER
from tonnage.fleet.model import GpuPod, Node
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.informers.expectations import Expectations
from tonnage.informers.owners import owner_keys
from tonnage.informers.store import Change, ObjectKey, Store
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    INFERENCE_DEPLOYMENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object
from tonnage.workloads.registry import WORKLOAD_KINDS

OnChange = Callable[[Kind, Change[Any]], None]


@dataclass(frozen=True, slots=True)
class PodEntry:
    """The stored part of a Pod: its GPUs, and the packed Pod where the operator owns it."""

    gpus: GpuPod | None
    packed: bytes | None


class Stores:
    """One store per kind. `on_change` is called after each change, with the kind; `clock` is
    monotonic, in seconds."""

    def __init__(
        self,
        on_change: OnChange = lambda kind, change: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        def new_packed_store(kind: Kind) -> Store[bytes]:
            return Store(
                pack,
                find_owners=partial(owner_keys, kind),
                on_change=partial(on_change, kind),
                expectations=Expectations(clock),
            )

        self.inference_deployments = new_packed_store(INFERENCE_DEPLOYMENTS)
        self.pools = new_packed_store(ACCELERATOR_POOLS)
        self.workloads = {kind: new_packed_store(kind) for kind in WORKLOAD_KINDS}
        self.services = new_packed_store(SERVICES)
        self.disruption_budgets = new_packed_store(POD_DISRUPTION_BUDGETS)
        self.resource_quotas = new_packed_store(RESOURCE_QUOTAS)
        self.limit_ranges = new_packed_store(LIMIT_RANGES)
        self.namespaces = new_packed_store(NAMESPACES)
        self.pods: Store[PodEntry] = Store(
            _read_pod,
            find_owners=partial(owner_keys, PODS),
            on_change=partial(on_change, PODS),
            expectations=Expectations(clock),
        )
        self.nodes: Store[Node] = Store(
            read_node, on_change=partial(on_change, NODES), expectations=Expectations(clock)
        )
        self._packed: Final = {
            INFERENCE_DEPLOYMENTS: self.inference_deployments,
            ACCELERATOR_POOLS: self.pools,
            **self.workloads,
            SERVICES: self.services,
            POD_DISRUPTION_BUDGETS: self.disruption_budgets,
            RESOURCE_QUOTAS: self.resource_quotas,
            LIMIT_RANGES: self.limit_ranges,
            NAMESPACES: self.namespaces,
        }
        self._stores: Final[Mapping[Kind, Store[Any]]] = {
            **self._packed,
            PODS: self.pods,
            NODES: self.nodes,
        }

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All stored kinds."""
        return tuple(self._stores)

    def store_for(self, kind: Kind) -> Store[Any]:
        """The store of a kind. Raises KeyError for a kind that has none."""
        return self._stores[kind]

    # Reading objects

    def lookup(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """An object of a kind that is stored in full; None where there is none."""
        packed = self._packed[kind].get(namespace, name)
        return None if packed is None else unpack(packed)

    def has_node(self, name: str) -> bool:
        """Whether a Node of this name is stored."""
        return self.nodes.get(None, name) is not None

    def workload_objects(self) -> list[Object]:
        """All objects of the kinds that run replicas."""
        return [body for kind in WORKLOAD_KINDS for body in self.objects(kind)]

    def owned(self, kind: Kind, owner: ObjectKey) -> list[Object]:
        """The objects of a kind that belong to an InferenceDeployment (`owners.owner_keys`)."""
        if kind == PODS:
            pods = self.pods.owned_by(owner)
            return [unpack(pod.packed) for pod in pods if pod.packed is not None]
        return [unpack(each) for each in self._packed[kind].owned_by(owner)]

    def objects(self, kind: Kind) -> Iterable[Object]:
        """All objects of a kind that is stored in full, unpacked one at a time."""
        return map(unpack, self._packed[kind].values())

    def owners(self) -> Sequence[ObjectKey]:
        """Every InferenceDeployment, and every owner that an owned object names, sorted."""
        keys = set(self.inference_deployments.object_keys())
        for store in (*self.workloads.values(), self.services):
            keys |= store.owners()
        return sorted(keys)

    # Own writes

    def write_in_flight(
        self, kind: Kind, namespace: str | None, name: str
    ) -> AbstractContextManager[None]:
        """While the operator writes this object, its events wait until the block ends."""
        store = self._packed.get(kind)
        return nullcontext() if store is None else store.write_in_flight(namespace, name)

    def put_written(self, kind: Kind, obj: Object) -> None:
        """Store the answer to an own write; nothing for a kind without a store."""
        if (store := self._packed.get(kind)) is not None:
            store.put_written(obj)

    def remove_deleted(self, kind: Kind, namespace: str | None, name: str, uid: str) -> None:
        """Forget an object that the API server has deleted at the operator's request."""
        if (store := self._packed.get(kind)) is not None:
            store.remove_deleted(namespace, name, uid)


def pack(obj: Object) -> bytes:
    """Compress an object to a tenth of the memory of its Python objects, without managedFields,
    which Tonnage does not read."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return zlib.compress(msgspec.json.encode({**obj, "metadata": metadata}), level=1)


def unpack(packed: bytes) -> Object:
    """Return a copy of the object, which the caller may change."""
    obj: Object = msgspec.json.decode(zlib.decompress(packed))
    return obj


def _read_pod(obj: Object) -> PodEntry:
    labels = obj["metadata"].get("labels") or {}
    return PodEntry(read_gpu_pod(obj), pack(obj) if LABEL_OWNER in labels else None)
