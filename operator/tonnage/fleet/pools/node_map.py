"""A map of nodes by name, of which a snapshot costs the same however many nodes there are.

Algorithm. Nodes are in buckets by a checksum of their name. A change replaces the bucket of its
node and no other, and no bucket changes once it is there: so a snapshot only lists the buckets.
"""

from collections.abc import ItemsView, Iterator, Mapping
from typing import Final, Generic, TypeVar
from zlib import crc32

_Node = TypeVar("_Node")

_BUCKETS: Final = 64
"""About the root of the nodes of a large pool: listing the buckets and copying one cost alike."""


class NodeMap(Mapping[str, _Node], Generic[_Node]):
    """Nodes by name, in an order that is the same in every process."""

    __slots__ = ("_buckets", "_count")

    def __init__(self) -> None:
        self._buckets: list[dict[str, _Node]] = [{}] * _BUCKETS
        self._count = 0

    def put(self, name: str, node: _Node) -> None:
        """Add or replace a node."""
        index = _index_of(name)
        bucket = self._buckets[index]
        self._buckets[index] = {**bucket, name: node}
        self._count += name not in bucket

    def remove(self, name: str) -> _Node:
        """Remove a node and return it. Raises KeyError for one that is not there."""
        index = _index_of(name)
        bucket = dict(self._buckets[index])
        removed = bucket.pop(name)
        self._buckets[index] = bucket
        self._count -= 1
        return removed

    def snapshot(self) -> "NodeMap[_Node]":
        """The nodes as they are now; later changes do not change it."""
        snapshot: NodeMap[_Node] = NodeMap()
        snapshot._buckets, snapshot._count = self._buckets.copy(), self._count
        return snapshot

    def items(self) -> ItemsView[str, _Node]:
        """The nodes with their names."""
        return _Items(self)

    def __getitem__(self, name: str) -> _Node:
        return self._buckets[_index_of(name)][name]

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count


class _Items(ItemsView[str, _Node], Generic[_Node]):
    """Iterates over the buckets, which takes no lookup for each node."""

    __slots__ = ()
    _mapping: NodeMap[_Node]

    def __iter__(self) -> Iterator[tuple[str, _Node]]:
        for bucket in self._mapping._buckets:
            yield from bucket.items()


def _index_of(name: str) -> int:
    return crc32(name.encode(errors="surrogatepass")) % _BUCKETS
