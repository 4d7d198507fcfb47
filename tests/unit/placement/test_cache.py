"""The cache changes no decision, and is bounded."""

from dataclasses import replace

import pytest

from tests.support.gpu_nodes import mixed_fleet, snapshot_of
from tests.support.placing import CATALOG, LLAMA_8B, LLAMA_70B, OWNER, spec_of
from tonnage.fit.model import Parallelism
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import GpuPod, Pool
from tonnage.fleet.resources import Resources
from tonnage.placement import judge
from tonnage.placement.cache import MAX_LOADS, MAX_PLACEMENT_SPECS, PlacementCache
from tonnage.placement.decide import decide
from tonnage.placement.load import load_of
from tonnage.placement.model import Decision, ReplicaPods, Request

REQUEST = Request(OWNER, spec_of(), LLAMA_70B)


class CountingPlacer:
    """A fleet and a cache; counts sized devices and judged pools."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet, self.cache = Fleet.of(snapshot_of(mixed_fleet()), CATALOG), PlacementCache()
        self.sized, self.judged = 0, 0
        size, make = judge.size_replicas, judge.keep_within_bounds

        def count_sized(*arguments: object) -> object:
            self.sized += 1
            return size(*arguments)  # type: ignore[arg-type]  # passed on as they come

        def count_judged(*arguments: object) -> object:
            self.judged += 1
            return make(*arguments)  # type: ignore[arg-type]  # passed on as they come

        monkeypatch.setattr(judge, "size_replicas", count_sized)
        monkeypatch.setattr(judge, "keep_within_bounds", count_judged)

    def decide(self, request: Request = REQUEST) -> Decision:
        pools = self.fleet.pools()
        decision = decide(request, pools, CATALOG, self.cache)
        sized, judged = self.sized, self.judged
        assert decision == decide(request, pools, CATALOG)
        self.sized, self.judged = sized, judged
        return decision

    def count(self, request: Request = REQUEST) -> tuple[int, int]:
        """Devices sized and pools judged for one more decision."""
        self.sized = self.judged = 0
        self.decide(request)
        return self.sized, self.judged


@pytest.fixture
def placer(monkeypatch: pytest.MonkeyPatch) -> CountingPlacer:
    placer = CountingPlacer(monkeypatch)
    placer.decide()
    return placer


def test_an_equal_request_is_cached(placer: CountingPlacer) -> None:
    assert placer.count() == (0, 0)
    assert placer.count(replace(REQUEST, owner=("chat", "another"))) == (0, 0)


def test_only_pools_that_changed_are_judged_again(placer: CountingPlacer) -> None:
    placer.fleet.put_pod(GpuPod("p", "h100-0", {"nvidia.com/gpu": 8}))
    assert placer.count() == (0, 1)


def test_another_placement_spec_is_judged_and_not_sized(placer: CountingPlacer) -> None:
    sized, judged = placer.count(replace(REQUEST, spec=spec_of(placement={"policy": "FewestGPUs"})))
    assert sized == 0
    assert judged > 0


def test_other_requests_of_pods_are_judged_and_not_sized(placer: CountingPlacer) -> None:
    pods = ReplicaPods("large", lambda option: Resources(10**6))
    sized, judged = placer.count(replace(REQUEST, pods=pods))
    assert sized == 0
    assert judged > 0


def test_another_load_is_sized(placer: CountingPlacer) -> None:
    assert placer.count(replace(REQUEST, checkpoint=LLAMA_8B))[0] > 0
    assert placer.count(replace(REQUEST, spec=spec_of(replicas=3)))[0] > 0
    assert placer.count(replace(REQUEST, spec=spec_of(workload={"concurrency": 7})))[0] > 0


def test_verdicts_on_the_kept_pool_are_not_cached(placer: CountingPlacer) -> None:
    pool = "nvidia-h100-sxm-80gb"
    kept = replace(REQUEST, keep=(pool, Parallelism(4)), held=3)
    assert placer.count(kept) == (0, 1)
    assert placer.count(replace(kept, held=1)) == (0, 1)
    assert placer.count() == (0, 0)


def test_another_pool_of_the_same_name_is_judged_again(placer: CountingPlacer) -> None:
    pools: tuple[Pool, ...] = Fleet.of(snapshot_of(mixed_fleet(cordoned=True)), CATALOG).pools()
    assert decide(REQUEST, pools, CATALOG, placer.cache) == decide(REQUEST, pools, CATALOG)


def test_the_cache_is_bounded() -> None:
    cache = PlacementCache()
    load = load_of(REQUEST.spec, REQUEST.checkpoint, CATALOG)
    sizes = cache.sizes(load)
    for replicas in range(MAX_LOADS):
        cache.sizes(replace(load, replicas=replicas))
    assert cache.sizes(load) is not sizes
    verdicts = cache.verdicts(load, REQUEST.spec.placement)
    for replicas in range(MAX_PLACEMENT_SPECS):
        cache.verdicts(replace(load, replicas=replicas), REQUEST.spec.placement)
    assert cache.verdicts(load, REQUEST.spec.placement) is not verdicts
