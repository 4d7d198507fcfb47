"""Every GPU node in exactly one group, and a description of each group, updated node by node."""

from collections.abc import Callable, Iterator

from tonnage.api.shard import Shard
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.alignment import Split
from tonnage.fleet.devices.recognize import Recogniser
from tonnage.fleet.devices.resources import dra_driver_of
from tonnage.fleet.dra.requests import aligning_attribute
from tonnage.fleet.model import DeclaredPool, Node
from tonnage.fleet.nodes.node_class import (
    Classifier,
    DeclaredGroup,
    GroupKey,
    NodeClass,
    topology_keys,
)
from tonnage.fleet.pools.description import GroupDescription, describe
from tonnage.fleet.pools.group import Group, Member
from tonnage.fleet.pools.names import name_groups
from tonnage.fleet.pools.separation import Separation, separate_groups
from tonnage.fleet.usage.gpu_pods import GpuPods

FreeSplit = Callable[[str, str], Split]
"""Returns the free GPUs of a node by the values of an attribute of devices."""


class Groups:
    """Groups by key. An event marks groups as stale, and `refresh` updates them.

    `names` are in the order of the pools. `regrouped_nodes` are nodes that have changed their group
    since the caller last reset it; `all_regrouped` says that any node may have, or that groups
    changed names.
    """

    def __init__(
        self, catalog: Catalog, gpu_pods: GpuPods, shard: Shard, free_split: FreeSplit
    ) -> None:
        self._shard = shard
        self._free_split = free_split
        self._gpu_pods = gpu_pods
        self._recogniser = Recogniser(catalog)
        self._classifier = Classifier(self._recogniser, ())
        self._regroup_all = False
        self._nodes: dict[str, Node] = {}
        self._declared: dict[str, DeclaredPool] = {}
        self._group_of: dict[str, Group] = {}
        self._stale: set[GroupKey] = set()
        self._keys_changed = False
        self.by_key: dict[GroupKey, Group] = {}
        self.names: dict[GroupKey, str] = {}
        self.descriptions: dict[GroupKey, GroupDescription] = {}
        self.separations: dict[GroupKey, Separation] = {}
        self.regrouped_nodes: set[str] = set()
        self.all_regrouped = False

    def nodes(self) -> Iterator[Node]:
        """All nodes, also those without GPUs, by name."""
        return (node for _, node in sorted(self._nodes.items()))

    def declared(self) -> Iterator[DeclaredPool]:
        """The declared pools by name."""
        return (pool for _, pool in sorted(self._declared.items()))

    def node(self, name: str) -> Node | None:
        """The node of that name, None when there is none."""
        return self._nodes.get(name)

    def key_of(self, node: str) -> GroupKey | None:
        """The group that a node is in, None when it does not exist or has no GPU."""
        group = self._group_of.get(node)
        return group.key if group else None

    def alignment_of(self, key: GroupKey, resource: str) -> str | None:
        """The attribute of devices by which a group aligns the GPUs of its pods, None: it does
        not."""
        driver = dra_driver_of(resource)
        if driver is None or not isinstance(key, DeclaredGroup):
            return None
        return aligning_attribute(self._declared[key.name].spec.device_alignment, driver)

    def put_node(self, node: Node) -> None:
        """Add or update a node."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if self._regroup_all:
            return
        if before is not None and _is_same_class(before, node):
            self._update_member(node)
        else:
            self._assign_group(node)

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        if self._nodes.pop(name, None) is not None:
            self._remove_member(name)

    def recount(self, name: str) -> None:
        """Count the GPUs that pods hold on a node again, where the node exists."""
        node = self._nodes.get(name)
        if node is not None and not self._regroup_all:
            self._update_member(node)

    def declare(self, pool: DeclaredPool) -> None:
        """Add or update a declared pool."""
        before = self._declared.get(pool.name)
        self._declared[pool.name] = pool
        self._regroup_all |= before is None or not _counts_same_nodes(before, pool)
        if not self._regroup_all:
            key = DeclaredGroup(pool.name)
            self.by_key[key].classes_changed = True
            self._stale.add(key)

    def withdraw(self, name: str) -> None:
        """Remove a declared pool."""
        self._regroup_all |= self._declared.pop(name, None) is not None

    def refresh(self) -> set[GroupKey]:
        """Apply all events since the last call; return the groups that have changed or are gone."""
        if self._regroup_all:
            self._group_all_nodes()
        stale, self._stale = self._stale, set()
        labels_changed = self._keys_changed | self._describe(stale)
        if self._keys_changed:
            stale |= self._name()
        if labels_changed:
            stale |= self._separate()
        return stale

    def _assign_group(self, node: Node) -> None:
        relevant_labels = self._classifier.relevant_label_count
        node_class = self._classifier.classify(node)
        self._regroup_all |= self._classifier.relevant_label_count > relevant_labels
        before = self._group_of.get(node.name)
        if before is not None and before.key != node_class.group:
            self._remove_member(node.name)
        if node_class.group is None:
            return
        group = self._ensure_group(node_class.group)
        if node.name not in group.members:
            self._group_of[node.name] = group
            self.regrouped_nodes.add(node.name)
        if group.put(node.name, self._make_member(node, node_class)):
            self._stale.add(group.key)

    def _update_member(self, node: Node) -> None:
        """Update the node's usability and free GPUs in the group that it is in."""
        group = self._group_of.get(node.name)
        if group is not None:
            node_class = group.members[node.name].node_class
            if group.put(node.name, self._make_member(node, node_class)):
                self._stale.add(group.key)

    def _make_member(self, node: Node, node_class: NodeClass) -> Member:
        used = self._gpu_pods.used(node.name, node_class.resource)
        if node.unusable is None:
            starting = node_class.awaits_devices
        else:
            starting = node.starting and node_class.is_usable_once_set_up
        starting = starting and not self._gpu_pods.on(node.name)
        requested = self._gpu_pods.other_requests(node.name)
        split: Split = ()
        if node_class.group is not None:
            attribute = self.alignment_of(node_class.group, node_class.resource)
            split = self._free_split(node.name, attribute) if attribute else ()
        return Member(node_class, node.unusable, used, starting, node.size, requested, split)

    def _remove_member(self, name: str) -> None:
        group = self._group_of.pop(name, None)
        if group is None:
            return
        group.remove(name)
        self._stale.add(group.key)
        if not group.members and not isinstance(group.key, DeclaredGroup):
            del self.by_key[group.key]
            self._keys_changed = True
        self.regrouped_nodes.add(name)

    def _ensure_group(self, key: GroupKey) -> Group:
        if key not in self.by_key:
            self.by_key[key] = Group(key)
            self._keys_changed = True
        return self.by_key[key]

    def _group_all_nodes(self) -> None:
        """Assign every node to a group again. A node may have the first label of a relevant key,
        by which earlier nodes may differ: then all are assigned once more. Such keys are few."""
        self._classifier = Classifier(self._recogniser, self._declared.values())
        while True:
            relevant_labels = self._classifier.relevant_label_count
            self._stale |= self.by_key.keys()
            self.by_key, self._group_of = {}, {}
            self._keys_changed = True
            for name in self._declared:
                self._ensure_group(DeclaredGroup(name))
            for node in self._nodes.values():
                self._assign_group(node)
            if self._classifier.relevant_label_count == relevant_labels:
                break
        self._stale |= self.by_key.keys()
        self._regroup_all = False
        self.all_regrouped = True

    def _describe(self, stale: set[GroupKey]) -> bool:
        """Describe the stale groups; return whether the labels that separate groups changed."""
        labels_changed = False
        for key in stale:
            group, before = self.by_key.get(key), self.descriptions.get(key)
            if group is None:
                self.descriptions.pop(key, None)
                continue
            # The reason of an unrecognised group contains the number of nodes.
            if before and not group.classes_changed and before.shape.unrecognised is None:
                continue
            declared = self._declared[key.name] if isinstance(key, DeclaredGroup) else None
            self.descriptions[key] = describe(group, declared, self._recogniser)
            group.classes_changed = False
            labels_changed |= before is None or before.labels != self.descriptions[key].labels
        return labels_changed

    def _name(self) -> set[GroupKey]:
        before, self.names = self.names, name_groups(self.by_key, self._shard)
        self._keys_changed = False
        self.all_regrouped = True
        return {key for key, name in self.names.items() if before.get(key) != name}

    def _separate(self) -> set[GroupKey]:
        labels = [self.descriptions[key].labels for key in self.names]
        before, self.separations = self.separations, separate_groups(labels)
        return {key for key, now in self.separations.items() if before.get(key) != now}


def _is_same_class(node: Node, other: Node) -> bool:
    return (
        node.labels == other.labels
        and node.taints == other.taints
        and node.capacity == other.capacity
        and node.allocatable == other.allocatable
        and node.networks == other.networks
        and node.published == other.published
    )


def _counts_same_nodes(pool: DeclaredPool, other: DeclaredPool) -> bool:
    return (
        pool.spec.node_selector == other.spec.node_selector
        and pool.spec.accelerator == other.spec.accelerator
        and topology_keys(pool) == topology_keys(other)
        and pool.spec.device_alignment == other.spec.device_alignment
    )
