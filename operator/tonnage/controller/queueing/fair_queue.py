"""Keys in round robin over their namespaces."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K")


class FairQueue(Generic[K]):
    """Round robin over the namespaces that have keys; first in, first out within one.

    Invariant: between two keys of a namespace, each other namespace has at most one. So a key at
    position i of its namespace (from 0), where n namespaces have keys, is at most the
    (i + 1) * n-th that `pop` returns. All methods take O(1).
    """

    def __init__(self, namespace_of: Callable[[K], Hashable]) -> None:
        self._namespace_of = namespace_of
        # Not dicts: taking the first entry of a dict scans all entries that were taken before.
        self._namespaces: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def push(self, key: K) -> None:
        """Add a key that is not in the queue. A namespace without keys goes to the end."""
        self._namespaces.setdefault(self._namespace_of(key), OrderedDict())[key] = None

    def pop(self) -> K:
        """Remove and return the next key; its namespace goes to the end."""
        namespace, keys = self._namespaces.popitem(last=False)
        key, _ = keys.popitem(last=False)
        if keys:
            self._namespaces[namespace] = keys
        return key

    def remove(self, key: K) -> None:
        """Remove a key that is in the queue, at any position."""
        namespace = self._namespace_of(key)
        keys = self._namespaces[namespace]
        del keys[key]
        if not keys:
            del self._namespaces[namespace]
