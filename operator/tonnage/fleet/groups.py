"""Every GPU node in exactly one group, and what each group is, kept current node by node."""

from collections.abc import Iterator

from tonnage.api.shard import Shard
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.borders import Border, draw_borders
from tonnage.fleet.described import Described, describe
from tonnage.fleet.group import Group, Member
from tonnage.fleet.held import HeldGpus
from tonnage.fleet.model import DeclaredPool, Node
from tonnage.fleet.naming import name_groups
from tonnage.fleet.node_class import Classifier, DeclaredGroup, GroupKey
from tonnage.fleet.recognise import Recogniser


class Groups:
    """Groups by key. What an event changed is marked, and worked out by `settle`.

    `names` are in the order of the pools. `moved` are nodes that have changed their group since
    somebody last emptied it; `regrouped` tells that any may have, or that groups changed names.
    """

    def __init__(self, catalog: Catalog, held: HeldGpus, shard: Shard) -> None:
        self._shard = shard
        self._catalog = catalog
        self._held = held
        self._recogniser = Recogniser(catalog)
        self._classifier = Classifier(self._recogniser, ())
        self._all_anew = False
        self._nodes: dict[str, Node] = {}
        self._declared: dict[str, DeclaredPool] = {}
        self._group_of: dict[str, Group] = {}
        self._stale: set[GroupKey] = set()
        self._roster_changed = False
        self.by_key: dict[GroupKey, Group] = {}
        self.names: dict[GroupKey, str] = {}
        self.described: dict[GroupKey, Described] = {}
        self.borders: dict[GroupKey, Border] = {}
        self.moved: set[str] = set()
        self.regrouped = False

    def nodes(self) -> Iterator[Node]:
        """All nodes, also those without GPUs, by name."""
        return (node for _, node in sorted(self._nodes.items()))

    def declared(self) -> Iterator[DeclaredPool]:
        """The declared pools by name."""
        return (pool for _, pool in sorted(self._declared.items()))

    def node(self, name: str) -> Node | None:
        """The node of that name."""
        return self._nodes.get(name)

    def key_of(self, node: str) -> GroupKey | None:
        """The group that a node is in, None when it is not there or has no GPU."""
        group = self._group_of.get(node)
        return group.key if group else None

    def put_node(self, node: Node) -> None:
        """The node is so now."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if self._all_anew:
            return
        if before is not None and _is_alike(before, node):
            self._recount(node)
        else:
            self._sort_in(node)

    def remove_node(self, name: str) -> None:
        """The node is gone."""
        if self._nodes.pop(name, None) is not None:
            self._leave(name)

    def recount(self, name: str) -> None:
        """The GPUs that pods hold on the node have changed, where such a node is there."""
        node = self._nodes.get(name)
        if node is not None and not self._all_anew:
            self._recount(node)

    def declare(self, pool: DeclaredPool) -> None:
        """The pool is declared so now."""
        before = self._declared.get(pool.name)
        self._declared[pool.name] = pool
        self._all_anew |= before is None or not _selects_alike(before, pool)
        if not self._all_anew:
            key = DeclaredGroup(pool.name)
            self.by_key[key].recast = True
            self._stale.add(key)

    def withdraw(self, name: str) -> None:
        """The pool is not declared any more."""
        self._all_anew |= self._declared.pop(name, None) is not None

    def settle(self) -> set[GroupKey]:
        """Work out what all events since the last time come to; the groups that are not as they
        were then, or are not there any more."""
        if self._all_anew:
            self._group_all()
        stale, self._stale = self._stale, set()
        redrawn = self._roster_changed | self._describe(stale)
        if self._roster_changed:
            stale |= self._name()
        if redrawn:
            stale |= self._draw_borders()
        return stale

    def _sort_in(self, node: Node) -> None:
        looked_at = self._classifier.looks_at
        kind = self._classifier.classify(node)
        self._all_anew |= self._classifier.looks_at > looked_at
        before = self._group_of.get(node.name)
        if before is not None and before.key != kind.group:
            self._leave(node.name)
        if kind.group is None:
            return
        group = self._group(kind.group)
        if node.name not in group.members:
            self._group_of[node.name] = group
            self.moved.add(node.name)
        used = self._held.used(node.name, kind.resource)
        if group.put(node.name, Member(kind, node.unusable, used)):
            self._stale.add(group.key)

    def _recount(self, node: Node) -> None:
        """The node, in the group that it is in, is in order or not and has so many GPUs free."""
        group = self._group_of.get(node.name)
        if group is not None:
            kind = group.members[node.name].kind
            used = self._held.used(node.name, kind.resource)
            if group.put(node.name, Member(kind, node.unusable, used)):
                self._stale.add(group.key)

    def _leave(self, name: str) -> None:
        group = self._group_of.pop(name, None)
        if group is None:
            return
        group.remove(name)
        self._stale.add(group.key)
        if not group.members and not isinstance(group.key, DeclaredGroup):
            del self.by_key[group.key]
            self._roster_changed = True
        self.moved.add(name)

    def _group(self, key: GroupKey) -> Group:
        if key not in self.by_key:
            self.by_key[key] = Group(key)
            self._roster_changed = True
        return self.by_key[key]

    def _group_all(self) -> None:
        """Sort in every node anew. One may show a label that has not been looked at, by which
        those before it may differ; there are few such labels, and they are found the first time."""
        self._classifier = Classifier(self._recogniser, self._declared.values())
        while True:
            looked_at = self._classifier.looks_at
            self._stale |= self.by_key.keys()
            self.by_key, self._group_of = {}, {}
            self._roster_changed = True
            for name in self._declared:
                self._group(DeclaredGroup(name))
            for node in self._nodes.values():
                self._sort_in(node)
            if self._classifier.looks_at == looked_at:
                break
        self._stale |= self.by_key.keys()
        self._all_anew = False
        self.regrouped = True

    def _describe(self, stale: set[GroupKey]) -> bool:
        """Describe the stale groups; whether the borders depend on what is new of them."""
        redrawn = False
        for key in stale:
            group, before = self.by_key.get(key), self.described.get(key)
            if group is None:
                self.described.pop(key, None)
                continue
            # What is not recognised is told with the number of nodes.
            if before and not group.recast and before.shape.unrecognised is None:
                continue
            declared = self._declared[key.name] if isinstance(key, DeclaredGroup) else None
            self.described[key] = describe(group, declared, self._catalog)
            group.recast = False
            redrawn |= before is None or before.outline != self.described[key].outline
        return redrawn

    def _name(self) -> set[GroupKey]:
        before, self.names = self.names, name_groups(self.by_key, self._shard)
        self._roster_changed = False
        self.regrouped = True
        return {key for key, name in self.names.items() if before.get(key) != name}

    def _draw_borders(self) -> set[GroupKey]:
        outlines = [self.described[key].outline for key in self.names]
        before, self.borders = self.borders, draw_borders(outlines)
        return {key for key, border in self.borders.items() if before.get(key) != border}


def _is_alike(node: Node, other: Node) -> bool:
    """Whether both are of one class."""
    return (
        node.labels == other.labels
        and node.taints == other.taints
        and node.capacity == other.capacity
        and node.allocatable == other.allocatable
    )


def _selects_alike(pool: DeclaredPool, other: DeclaredPool) -> bool:
    return (
        pool.spec.node_selector == other.spec.node_selector
        and pool.spec.accelerator == other.spec.accelerator
    )
