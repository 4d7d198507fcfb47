"""The stores of all kinds that a reconcile reads."""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from tonnage.api.names import owner_of
from tonnage.fleet.dra.read import read_claim, read_device_class, read_slice
from tonnage.fleet.model import GpuPod, Node
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.resource_slices import AllocatedClaim, ResourceSlice
from tonnage.informers.ended_pods import EndedPods
from tonnage.informers.expectations import Expectations
from tonnage.informers.owners import owner_keys
from tonnage.informers.store import Change, ObjectKey, Store
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    DEVICE_CLASSES,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object
from tonnage.workloads.registry import WORKLOAD_KINDS

OnChange = Callable[[Kind, Change[Any]], None]


_READ_AS_CHILDREN: Final = (RESOURCE_CLAIM_TEMPLATES, COMPUTE_DOMAINS, JOBS)


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
        self.ended_pods = EndedPods()
        self.pods: Store[PodEntry] = Store(
            _read_pod,
            find_owners=partial(owner_keys, PODS),
            on_change=partial(self._change_pod, on_change),
            expectations=Expectations(clock),
        )
        self.nodes: Store[Node] = Store(
            read_node, on_change=partial(on_change, NODES), expectations=Expectations(clock)
        )
        self.slices: Store[ResourceSlice | None] = Store(
            read_slice, on_change=partial(on_change, RESOURCE_SLICES)
        )
        self.claims: Store[AllocatedClaim | None] = Store(
            read_claim, on_change=partial(on_change, RESOURCE_CLAIMS)
        )
        self.device_classes: Store[str | None] = Store(
            read_device_class, on_change=partial(on_change, DEVICE_CLASSES)
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
            **{kind: new_packed_store(kind) for kind in _READ_AS_CHILDREN},
        }
        self._stores: Final[Mapping[Kind, Store[Any]]] = {
            **self._packed,
            PODS: self.pods,
            NODES: self.nodes,
            RESOURCE_SLICES: self.slices,
            RESOURCE_CLAIMS: self.claims,
            DEVICE_CLASSES: self.device_classes,
        }

    def _change_pod(self, on_change: OnChange, change: Change[PodEntry]) -> None:
        before = change.before
        if change.after is None and before is not None and before.packed is not None:
            self.ended_pods.note(change.owners, unpack(before.packed))
        on_change(PODS, change)

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

    def workloads_by_owner(self) -> Iterator[tuple[ObjectKey, list[Object]]]:
        """The objects of the kinds that run replicas, those of one InferenceDeployment at a time:
        all of them at once would take hundreds of megabytes."""
        for owner in sorted(
            {owner for store in self.workloads.values() for owner in store.owners()}
        ):
            yield owner, [body for kind in WORKLOAD_KINDS for body in self.owned(kind, owner)]

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
    return PodEntry(read_gpu_pod(obj), pack(obj) if owner_of(labels) else None)
