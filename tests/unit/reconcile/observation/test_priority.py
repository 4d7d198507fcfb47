"""Which priority an object has, by the PriorityClasses that the operator read."""

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tonnage import delays
from tonnage.kube.kinds import PRIORITY_CLASSES
from tonnage.kube.protocol import TransientError
from tonnage.reconcile.observation.priority import Priorities


class Bench:
    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        body = {"metadata": {"name": "high"}, "value": 1000}
        self.api.put(PRIORITY_CLASSES, body)
        self.priorities = Priorities(lambda: self.api.list(PRIORITY_CLASSES), self.clock.now)

    def fail(self) -> None:
        self.api.fail_next("list", TransientError("down"), kind=PRIORITY_CLASSES)


async def test_an_outage_changes_no_priority_that_is_known() -> None:
    bench = Bench()
    assert await bench.priorities.find("high") == 1000
    bench.clock.advance(delays.READ_PRIORITY_CLASSES)
    bench.fail()
    assert await bench.priorities.find("high") == 1000


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_outage_is_no_answer_where_nothing_is_known(is_first: bool) -> None:
    bench = Bench()
    if not is_first:
        await bench.priorities.find("high")
    bench.fail()
    with pytest.raises(TransientError):
        await bench.priorities.find("high" if is_first else "new")
