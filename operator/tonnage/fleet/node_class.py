"""Nodes of a cluster are alike: ten thousand of them are a few hundred classes.

Which pool a node is in, and all that its pool says of itself, follows from the classes of the
nodes; how many GPUs are free follows from how many nodes each class has. So an event looks at one
node, and never at the others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from tonnage.catalog.catalog import UnknownAcceleratorError
from tonnage.catalog.model import Accelerator
from tonnage.fleet.label_index import PARTITION
from tonnage.fleet.model import DeclaredPool, Node, Taint
from tonnage.fleet.recognise import Recognised, Recogniser, Recognition, Unrecognised, offered
from tonnage.fleet.selecting import SelectorIndex, selector_of
from tonnage.fleet.taints import out_of_order

DESCRIBING: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.device-id",
    "beta.amd.com/gpu.device-id",
    "amd.com/gpu.product-name",
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.present",
    "kubernetes.io/os",
)
"""Labels that tell people which nodes are meant where the card is not known, the best first."""


@dataclass(frozen=True, slots=True)
class DeclaredGroup:
    """The nodes of a declared pool."""

    name: str


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """Nodes of no declared pool with the same devices, told by the same labels. `mode` is that of
    a partition, empty for whole GPUs."""

    accelerator: str
    virtual_function: bool
    resource: str
    mode: str
    told_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownGroup:
    """Nodes of no declared pool whose devices are not known or nothing can be planned on."""

    resource: str


GroupKey = DeclaredGroup | KnownGroup | UnknownGroup


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NodeClass:
    """What counts of a node beside its name and whether it is in order. All nodes of a class share
    one object, so that classes are compared by identity.

    `group` is None when the node offers no GPU and nobody declared it. `selecting` are the declared
    pools that select such nodes, by name: the first has them. `labels` are those that somebody
    looks at, `taints` those that do not make the node unusable by themselves. `gpus` and
    `allocatable` count `resource`.
    """

    group: GroupKey | None
    selecting: tuple[str, ...]
    recognition: Recognition | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    resource: str
    gpus: int
    allocatable: int


class Classifier:
    """Finds the class of a node, for one set of declared pools."""

    def __init__(self, recogniser: Recogniser, pools: Iterable[DeclaredPool]) -> None:
        declared = list(pools)
        self._recogniser = recogniser
        self._accelerators = {pool.name: _named_accelerator(pool, recogniser) for pool in declared}
        self._index = SelectorIndex(
            (selector_of(pool.spec.node_selector), pool.name) for pool in declared
        )
        self._looked_at = {PARTITION, *DESCRIBING}
        self._looked_at.update(key for pool in declared for key in pool.spec.node_selector)
        self._classes: WeakValueDictionary[object, NodeClass] = WeakValueDictionary()

    @property
    def looks_at(self) -> int:
        """How many labels are looked at; nodes classified while there were fewer may be alike in
        their class and differ in the new one."""
        return len(self._looked_at)

    def classify(self, node: Node) -> NodeClass:
        """The class of the node, which its labels, its taints and its GPUs decide."""
        selecting = tuple(sorted(self._index.selecting(self._labels(node))))
        declared = self._accelerators[selecting[0]] if selecting else None
        recognition = self._recogniser.recognise(node, declared)
        if isinstance(recognition, Recognised):
            self._looked_at.update(key for key, _ in recognition.selector)
        labels = self._labels(node)
        resource = recognition.resource if recognition else ""
        taints = tuple(taint for taint in node.taints if out_of_order([taint]) is None)
        gpus, allocatable = offered(node, resource), node.allocatable.get(resource, 0)
        alike = (frozenset(labels.items()), recognition, taints, resource, gpus, allocatable)
        found = self._classes.get(alike)
        if found is None:
            group = _group_of(selecting, recognition)
            found = NodeClass(
                group, selecting, recognition, labels, taints, resource, gpus, allocatable
            )
            self._classes[alike] = found
        return found

    def _labels(self, node: Node) -> dict[str, str]:
        return {key: value for key, value in node.labels.items() if key in self._looked_at}


def _group_of(selecting: tuple[str, ...], recognition: Recognition | None) -> GroupKey | None:
    if selecting:
        return DeclaredGroup(selecting[0])
    if isinstance(recognition, Unrecognised):
        return UnknownGroup(recognition.resource)
    if recognition is None:
        return None
    return KnownGroup(
        accelerator=recognition.accelerator.id,
        virtual_function=recognition.virtual_function,
        resource=recognition.resource,
        mode=recognition.partition.mode if recognition.partition else "",
        told_by=tuple(key for key, _ in recognition.selector),
    )


def _named_accelerator(pool: DeclaredPool, recogniser: Recogniser) -> Accelerator | None:
    """The accelerator that the pool names; what the labels tell where there is none of the name."""
    if pool.spec.accelerator is None:
        return None
    try:
        return recogniser.catalog.accelerator(pool.spec.accelerator)
    except UnknownAcceleratorError:
        return None
