"""What pods request of a node in addition to GPUs: CPU, memory and ephemeral storage."""

from collections.abc import Iterable
from typing import Final, NamedTuple

UNKNOWN: Final = 2**62
"""CPU, memory or storage of a node whose status does not state it: enough for every pod."""

_CORE: Final = 1000
_GIB: Final = 2**30


class Resources(NamedTuple):
    """CPU in thousandths of a core, memory and ephemeral storage in bytes."""

    cpu: int = 0
    memory: int = 0
    storage: int = 0

    def plus(self, other: "Resources") -> "Resources":
        """Both together."""
        return Resources(
            self.cpu + other.cpu, self.memory + other.memory, self.storage + other.storage
        )

    def minus(self, other: "Resources") -> "Resources":
        """What is left without the other, at least 0 of each."""
        return Resources(
            max(0, self.cpu - other.cpu),
            max(0, self.memory - other.memory),
            max(0, self.storage - other.storage),
        )

    def times(self, count: int) -> "Resources":
        """As many of them."""
        return Resources(self.cpu * count, self.memory * count, self.storage * count)

    def covers(self, requests: "Resources") -> bool:
        """Whether the requests fit."""
        return (
            self.cpu >= requests.cpu
            and self.memory >= requests.memory
            and self.storage >= requests.storage
        )

    def fitting(self, requests: "Resources", most: int) -> int:
        """How many of these requests fit at once, up to a number."""
        for has, each in zip(self, requests, strict=True):
            if each:
                most = min(most, has // each)
        return most

    def for_each(self, gpus: int) -> "Resources":
        """The part for each of some GPUs, rounded down to a step, and no more than any replica
        needs: machines that differ by some bytes have the same part."""
        return Resources(
            *(
                min(most, has // gpus // step * step)
                for has, most, step in zip(self, _AMPLE, _STEP, strict=True)
            )
        )

    def rounded_up(self) -> "Resources":
        """The next whole cores and GiB."""
        return Resources(
            *(-(-has // step) * step for has, step in zip(self, (_CORE, _GIB, _GIB), strict=True))
        )


NOTHING: Final = Resources()

UNKNOWN_SIZE: Final = Resources(UNKNOWN, UNKNOWN, UNKNOWN)
"""The size of a node of which nothing is known."""

_STEP: Final = Resources(_CORE // 2, _GIB, _GIB)
_AMPLE: Final = Resources(64 * _CORE, 1024 * _GIB, 8192 * _GIB)


def least(each: Iterable[Resources]) -> Resources:
    """The least of each kind; UNKNOWN_SIZE for none."""
    result = UNKNOWN_SIZE
    for one in each:
        result = Resources(*map(min, result, one))
    return result


def most(each: Iterable[Resources]) -> Resources:
    """The most of each kind; NOTHING for none."""
    result = NOTHING
    for one in each:
        result = Resources(*map(max, result, one))
    return result
