"""Classes of identical nodes: ten thousand nodes have a few hundred classes.

The classes of the nodes decide which pool a node is in and what the pool reports of itself; the
number of nodes per class decides how many GPUs are free. So an event examines only its own node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from tonnage.catalog.catalog import UnknownAcceleratorError
from tonnage.catalog.interconnects import load_interconnects
from tonnage.catalog.model import Accelerator
from tonnage.fleet.devices.label_index import PARTITION
from tonnage.fleet.devices.recognize import (
    Recognised,
    Recogniser,
    Recognition,
    Unrecognised,
    offered,
)
from tonnage.fleet.model import DeclaredPool, Node, Taint
from tonnage.fleet.nodes.label_selectors import SelectorIndex, selector_of
from tonnage.fleet.nodes.taints import why_out_of_order

DESCRIPTIVE_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.device-id",
    "beta.amd.com/gpu.device-id",
    "amd.com/gpu.product-name",
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.present",
    "kubernetes.io/os",
)
"""Labels that describe nodes to people where the card is not known, the best first."""


@dataclass(frozen=True, slots=True)
class DeclaredGroup:
    """The nodes of a declared pool."""

    name: str


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """Nodes of no declared pool with the same devices, identified by the same labels. `mode` is
    that of a partition, empty for whole GPUs."""

    accelerator: str
    virtual_function: bool
    resource: str
    mode: str
    identified_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownGroup:
    """Nodes of no declared pool whose devices are unknown or cannot be planned on."""

    resource: str


GroupKey = DeclaredGroup | KnownGroup | UnknownGroup


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NodeClass:
    """Everything relevant of a node except its name and its health. All nodes of a class share one
    object, so that classes are compared by identity.

    `group` is None when the node offers no GPU and is in no declared pool. `selecting_pools` are
    names of declared pools that select such nodes: the first owns them. `labels` are the relevant
    ones, `taints` those that do not make the node unusable by themselves. `gpus` and `allocatable`
    count `resource`, `networks` the adapters of known networks between nodes, by resource.
    """

    group: GroupKey | None
    selecting_pools: tuple[str, ...]
    recognition: Recognition | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    resource: str
    gpus: int
    allocatable: int
    networks: Mapping[str, int]

    @property
    def awaits_devices(self) -> bool:
        """Whether the device plugin offers no GPUs yet, or no labeller has named them yet."""
        if isinstance(self.recognition, Unrecognised):
            return self.recognition.unlabelled
        return self.gpus == 0

    @property
    def is_usable_once_set_up(self) -> bool:
        """Whether such a node is capacity of a pool that it suits, but for its own state."""
        recognised = isinstance(self.recognition, Recognised) and self.recognition.unusable is None
        return recognised or self.awaits_devices


class Classifier:
    """Assigns classes to nodes, for one set of declared pools."""

    def __init__(self, recogniser: Recogniser, pools: Iterable[DeclaredPool]) -> None:
        declared = list(pools)
        self._recogniser = recogniser
        self._accelerators = {pool.name: _named_accelerator(pool, recogniser) for pool in declared}
        self._index = SelectorIndex(
            (selector_of(pool.spec.node_selector), pool.name) for pool in declared
        )
        domains = load_interconnects().domain_labels
        self._relevant_keys = {PARTITION, *DESCRIPTIVE_LABELS, *domains}
        self._relevant_keys.update(key for pool in declared for key in pool.spec.node_selector)
        self._relevant_keys.update(key for pool in declared for key in topology_keys(pool))
        self._classes: WeakValueDictionary[object, NodeClass] = WeakValueDictionary()

    @property
    def relevant_label_count(self) -> int:
        """How many label keys are relevant. Once there are more, nodes that were classified before
        may share a class and yet differ in a new key."""
        return len(self._relevant_keys)

    def classify(self, node: Node) -> NodeClass:
        """Return the class of the node, decided by its labels, its taints and its GPUs."""
        selecting_pools = tuple(sorted(self._index.match(self._relevant_labels(node))))
        declared = self._accelerators[selecting_pools[0]] if selecting_pools else None
        recognition = self._recogniser.recognise(node, declared)
        if isinstance(recognition, Recognised):
            self._relevant_keys.update(key for key, _ in recognition.selector)
        labels = self._relevant_labels(node)
        resource = recognition.resource if recognition else ""
        taints = tuple(taint for taint in node.taints if why_out_of_order([taint]) is None)
        gpus, allocatable = offered(node, resource), node.allocatable.get(resource, 0)
        networks = frozenset(node.networks.items())
        key = (
            frozenset(labels.items()),
            recognition,
            taints,
            resource,
            gpus,
            allocatable,
            networks,
        )
        node_class = self._classes.get(key)
        if node_class is None:
            group = _group_of(selecting_pools, recognition)
            node_class = NodeClass(
                group=group,
                selecting_pools=selecting_pools,
                recognition=recognition,
                labels=labels,
                taints=taints,
                resource=resource,
                gpus=gpus,
                allocatable=allocatable,
                networks=node.networks,
            )
            self._classes[key] = node_class
        return node_class

    def _relevant_labels(self, node: Node) -> dict[str, str]:
        return {key: value for key, value in node.labels.items() if key in self._relevant_keys}


def topology_keys(pool: DeclaredPool) -> tuple[str, ...]:
    """The label whose value the nodes of one replica share; none where the pool states none."""
    interconnect = pool.spec.interconnect
    return (interconnect.topology_key,) if interconnect and interconnect.topology_key else ()


def _group_of(selecting_pools: tuple[str, ...], recognition: Recognition | None) -> GroupKey | None:
    if selecting_pools:
        return DeclaredGroup(selecting_pools[0])
    if isinstance(recognition, Unrecognised):
        return UnknownGroup(recognition.resource)
    if recognition is None:
        return None
    return KnownGroup(
        accelerator=recognition.accelerator.id,
        virtual_function=recognition.virtual_function,
        resource=recognition.resource,
        mode=recognition.partition.mode if recognition.partition else "",
        identified_by=tuple(key for key, _ in recognition.selector),
    )


def _named_accelerator(pool: DeclaredPool, recogniser: Recogniser) -> Accelerator | None:
    """Return the accelerator that the pool names, None where the labels have to identify it."""
    if pool.spec.accelerator is None:
        return None
    try:
        return recogniser.catalog.accelerator(pool.spec.accelerator)
    except UnknownAcceleratorError:
        return None
