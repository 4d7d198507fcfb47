"""The cache changes no decision, and is bounded."""

from dataclasses import replace

import pytest

from tests.support.fleets.gpu_nodes import mixed_fleet, snapshot_of
from tests.support.fleets.placing import CATALOG, LLAMA_8B, LLAMA_70B, OWNER, declared, spec_of
from tonnage.fit.model import Parallelism
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import GpuPod, Pool
from tonnage.fleet.resources import Resources
from tonnage.placement import judge
from tonnage.placement.cache import MAX_LOADS, MAX_PLACEMENT_SPECS, PlacementCache
from tonnage.placement.decide import decide
from tonnage.placement.load import load_of
from tonnage.placement.model import Decision, Option, ReplicaPods, Request

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


def test_a_pool_that_costs_more_now_is_ranked_again(placer: CountingPlacer) -> None:
    first = placer.decide().chosen
    assert first is not None
    dear = declared("dear", {"team": "a"}, costPerGPUHour="1000").spec
    pools = tuple(
        replace(pool, declared=dear) if pool.name == first.pool.name else pool
        for pool in placer.fleet.pools()
    )
    decision = decide(REQUEST, pools, CATALOG, placer.cache)
    assert decision == decide(REQUEST, pools, CATALOG)
    assert decision.chosen is not None
    assert decision.chosen.pool.name != first.pool.name


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


def test_pods_are_rendered_again_for_another_pool_and_not_for_other_nodes(
    placer: CountingPlacer,
) -> None:
    rendered: list[str] = []

    def requests_on(pools: tuple[Pool, ...]) -> list[str]:
        rendered.clear()
        decide(replace(REQUEST, pods=pods), pools, CATALOG, placer.cache)
        return sorted(set(rendered))

    def render(option: Option) -> Resources:
        rendered.append(option.pool.name)
        cpu = 1 if option.pool.declared is None else 2
        return Resources(cpu)

    pods, pool = ReplicaPods("counted", render), "nvidia-h100-sxm-80gb"
    assert pool in requests_on(placer.fleet.pools())
    placer.fleet.put_pod(GpuPod("p", "h100-0", {"nvidia.com/gpu": 8}))
    assert requests_on(placer.fleet.pools()) == []
    spec = declared("h100", {"team": "a"}).spec
    pools = tuple(
        replace(each, declared=spec) if each.name == pool else each for each in placer.fleet.pools()
    )
    assert requests_on(pools) == [pool]
