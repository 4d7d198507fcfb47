"""A cache of sizes and verdicts, so that a plan computes only what has changed since the last one.

A cached result never differs from a new one: a size depends only on the devices and the load, a
pool that is the same object as before has not changed, and what pods request depends on no node.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tonnage.api.placement import PlacementSpec
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import Pool
from tonnage.fleet.resources import Resources
from tonnage.placement.filters.screening import Devices
from tonnage.placement.load import Load
from tonnage.placement.model import Option, Rejection
from tonnage.placement.scoring.compare import Ranked
from tonnage.placement.scoring.sizing import Size

MAX_LOADS: Final = 256
"""Loads with cached sizes: one takes about 100 KiB for 20 kinds of devices."""

MAX_PLACEMENT_SPECS: Final = 64
"""Combinations of a load, a `spec.placement` and the requests of pods with cached verdicts: one
takes about 200 KiB for 200 pools."""

Sizes = dict[Devices, Sequence[Size] | Rejection]

PodRequests = dict[tuple[Parallelism, int], Resources]
"""What a pod requests besides GPUs, by the parallelism and the weights of one GPU in bytes."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """By the name of a pool: the judged pool with its verdict, its option as ranked, the pool
    without its nodes with the requests of pods on it, and what was taken of the verdicts with
    several engines."""

    by_pool: dict[str, tuple[Pool, Option | Rejection]] = field(default_factory=dict)
    ranked: dict[str, Ranked] = field(default_factory=dict)
    requests: dict[str, tuple[Pool, PodRequests]] = field(default_factory=dict)
    taken: dict[str, tuple[Sequence[object], Option | Rejection]] = field(default_factory=dict)

    def requests_on(self, pool: Pool) -> PodRequests:
        """The cached requests of pods on the pool, which are the same whatever nodes it has; the
        caller adds new ones."""
        described, cached = pool.without_nodes(), self.requests.get(pool.name)
        if cached is None or cached[0] != described:
            cached = self.requests[pool.name] = described, {}
        return cached[1]


class PlacementCache:
    """A least-recently-used cache, for one catalogue: sizes by load, verdicts by load and spec."""

    def __init__(self) -> None:
        self._sizes = lru_cache(MAX_LOADS)(_make_sizes)
        self._verdicts = lru_cache(MAX_PLACEMENT_SPECS)(_make_verdicts)

    def sizes(self, load: Load) -> Sizes:
        """The cached sizes of devices under this load; the caller adds new ones."""
        return self._sizes(load)

    def verdicts(self, load: Load, placement: PlacementSpec, pods: Hashable = None) -> Verdicts:
        """The cached verdicts on pools for this load and spec, of `pods` with such requests; the
        caller adds new ones."""
        return self._verdicts(load, placement.model_dump_json(), pods)


def _make_sizes(load: Load) -> Sizes:
    return {}


def _make_verdicts(load: Load, placement: str, pods: Hashable) -> Verdicts:
    return Verdicts()
