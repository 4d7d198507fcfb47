"""What is remembered changes no decision, and is forgotten in time."""

from dataclasses import replace

import pytest

from tests.support.gpu_nodes import mixed_fleet, snapshot_of
from tests.support.placing import CATALOG, LLAMA_8B, LLAMA_70B, OWNER, spec_of
from tonnage.fit.model import Parallelism
from tonnage.fit.options import engine_options
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import GpuPod, Pool
from tonnage.placement import judge
from tonnage.placement.decide import decide
from tonnage.placement.load import load_of
from tonnage.placement.memory import LOADS, WISHES, Memory
from tonnage.placement.model import Decision, Request

ASKED = Request(OWNER, spec_of(), LLAMA_70B)


class Deciding:
    """A fleet and a memory, asked again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet, self.memory = Fleet.of(snapshot_of(mixed_fleet()), CATALOG), Memory()
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

    def decide(self, request: Request = ASKED) -> Decision:
        pools = self.fleet.pools()
        decision = decide(request, pools, CATALOG, self.memory)
        sized, judged = self.sized, self.judged
        assert decision == decide(request, pools, CATALOG)
        self.sized, self.judged = sized, judged
        return decision

    def count(self, request: Request = ASKED) -> tuple[int, int]:
        """Devices sized and pools judged for one more decision."""
        self.sized = self.judged = 0
        self.decide(request)
        return self.sized, self.judged


@pytest.fixture
def deciding(monkeypatch: pytest.MonkeyPatch) -> Deciding:
    found = Deciding(monkeypatch)
    found.decide()
    return found


def test_the_same_is_not_asked_twice(deciding: Deciding) -> None:
    assert deciding.count() == (0, 0)
    assert deciding.count(replace(ASKED, owner=("chat", "another"))) == (0, 0)


def test_only_pools_that_changed_are_judged_again(deciding: Deciding) -> None:
    deciding.fleet.put_pod(GpuPod("p", "h100-0", {"nvidia.com/gpu": 8}))
    assert deciding.count() == (0, 1)


def test_what_is_said_of_pools_is_judged_and_not_sized(deciding: Deciding) -> None:
    sized, judged = deciding.count(replace(ASKED, spec=spec_of(placement={"policy": "FewestGPUs"})))
    assert sized == 0
    assert judged > 0


def test_another_load_is_sized(deciding: Deciding) -> None:
    assert deciding.count(replace(ASKED, checkpoint=LLAMA_8B))[0] > 0
    assert deciding.count(replace(ASKED, spec=spec_of(replicas=3)))[0] > 0
    assert deciding.count(replace(ASKED, spec=spec_of(workload={"concurrency": 7})))[0] > 0


def test_what_replicas_have_of_their_own_pool_is_theirs_alone(deciding: Deciding) -> None:
    pool = "nvidia-h100-sxm-80gb"
    kept = replace(ASKED, keep=(pool, Parallelism(4)), held=3)
    assert deciding.count(kept) == (0, 1)
    assert deciding.count(replace(kept, held=1)) == (0, 1)
    assert deciding.count() == (0, 0)


def test_a_pool_of_the_same_name_is_not_the_same_pool(deciding: Deciding) -> None:
    pools: tuple[Pool, ...] = Fleet.of(snapshot_of(mixed_fleet(cordoned=True)), CATALOG).pools()
    assert decide(ASKED, pools, CATALOG, deciding.memory) == decide(ASKED, pools, CATALOG)


def test_memory_is_bounded() -> None:
    memory = Memory()
    load = load_of(ASKED.spec, ASKED.checkpoint, engine_options(ASKED.spec, CATALOG))
    first = memory.sizes(load)
    for replicas in range(LOADS):
        memory.sizes(replace(load, replicas=replicas))
    assert memory.sizes(load) is not first
    seen = memory.verdicts(load, ASKED.spec.placement)
    for number in range(WISHES):
        memory.verdicts(replace(load, replicas=number), ASKED.spec.placement)
    assert memory.verdicts(load, ASKED.spec.placement) is not seen
