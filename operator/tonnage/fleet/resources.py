"""What pods request of a node: GPUs, CPU, memory and ephemeral storage."""

from collections.abc import Iterable
from typing import Final, NamedTuple

UNKNOWN: Final = 2**62
"""CPU, memory or storage of a node whose status does not state it: enough for every pod."""

_GIB: Final = 1024**3
_CORE: Final = 1000


class Resources(NamedTuple):
    """GPUs of the node's own resource, CPU in thousandths of a core, memory and ephemeral storage
    in bytes. Ordered by GPUs, then CPU, memory and storage."""

    gpus: int = 0
    cpu: int = 0
    memory: int = 0
    storage: int = 0

    def plus(self, other: "Resources") -> "Resources":
        """Both together."""
        return Resources(
            self.gpus + other.gpus,
            self.cpu + other.cpu,
            self.memory + other.memory,
            self.storage + other.storage,
        )

    def minus(self, other: "Resources") -> "Resources":
        """What is left without the other, at least 0 of each."""
        return Resources(
            max(0, self.gpus - other.gpus),
            max(0, self.cpu - other.cpu),
            max(0, self.memory - other.memory),
            max(0, self.storage - other.storage),
        )

    def times(self, count: int) -> "Resources":
        """As many of them."""
        return Resources(
            self.gpus * count, self.cpu * count, self.memory * count, self.storage * count
        )

    def covers(self, request: "Resources") -> bool:
        """Whether the request fits."""
        return (
            self.gpus >= request.gpus
            and self.cpu >= request.cpu
            and self.memory >= request.memory
            and self.storage >= request.storage
        )

    def count(self, request: "Resources") -> int:
        """How many requests, of at least one GPU each, fit at once."""
        fitting = self.gpus // request.gpus
        if request.cpu:
            fitting = min(fitting, self.cpu // request.cpu)
        if request.memory:
            fitting = min(fitting, self.memory // request.memory)
        if request.storage:
            fitting = min(fitting, self.storage // request.storage)
        return fitting

    def bounded(self) -> "Resources":
        """The same with no more than AMPLE of CPU, memory and storage for each GPU."""
        gpus = self.gpus
        return Resources(
            gpus,
            min(self.cpu, gpus * AMPLE.cpu),
            min(self.memory, gpus * AMPLE.memory),
            min(self.storage, gpus * AMPLE.storage),
        )

    @property
    def is_countable(self) -> bool:
        """Whether counts of bounded resources decide where the request fits: it has no more than
        AMPLE of anything for each of its GPUs."""
        return AMPLE.times(self.gpus).covers(self)


NOTHING: Final = Resources()

UNKNOWN_SIZE: Final = Resources(0, UNKNOWN, UNKNOWN, UNKNOWN)
"""What a node has in addition to GPUs where nothing is known of it."""

AMPLE: Final = Resources(1, 16 * _CORE, 128 * _GIB, 512 * _GIB)
"""More than a replica requests for each of its GPUs, by the operator's own formula. Of nodes that
have as much left for each free GPU, only the GPUs have to be counted: the memory of equal machines
differs by some bytes, and thousands of nodes would otherwise all differ."""


def largest(each: Iterable[Resources]) -> Resources:
    """The most of each; nothing for none."""
    most = NOTHING
    for one in each:
        most = Resources(*map(max, most, one))
    return most
