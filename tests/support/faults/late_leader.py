"""A leader that stands still in the middle of a reconcile, and wakes up when another one leads."""

import asyncio
from typing import Final

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.crash_plans import compare_ends
from tests.support.faults.live_operator import LiveCluster
from tests.support.faults.scenarios import SCENARIOS
from tests.support.faults.virtual_time import run_in_virtual_time
from tests.support.in_memory.end_state import CHILDREN, end_state, find_faults
from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.kube.lease import LeaseTiming
from tonnage.kube.protocol import Object

_SLEEP_SECONDS: Final = 60.0


def wake_up_late() -> list[str]:
    """It had read a change that was taken back while it stood still; what is wrong then."""
    return run_in_virtual_time(_sleep_through_a_change)


async def _sleep_through_a_change() -> list[str]:
    scenario = SCENARIOS["re-plan to another pool"]
    start = await scenario.prepare()
    before = start.inference_deployment()["spec"]
    async with LiveCluster.led(start.api.copy(), start.behaviours, LeaseTiming()) as cluster:
        await cluster.start_replica(LeaseTiming())
        calls = len(cluster.api.calls)
        sleeper = cluster.replicas[0].wakefulness
        sleeper.sleep()
        scenario.change(cluster)
        await asyncio.sleep(1)
        assert sleeper.waiting, "the first leader is in the middle of a reconcile"
        cluster.apply("llama", before)
        await asyncio.sleep(_SLEEP_SECONDS)
        sleeper.wake()
        await cluster.wait(_SLEEP_SECONDS)
        written = [
            f"{call.verb} {call.name}, which no object needs any more"
            for call in cluster.api.calls[calls:]
            if call.effective and call.kind in CHILDREN
        ]
        ends = compare_ends(_children(cluster.api), _children(start.api))
        return [*written, *ends, *find_faults(cluster.api)]


def _children(api: FakeApi) -> Object:
    bodies = end_state(api).items()
    return {name: body for name, body in bodies if not name.startswith(INFERENCE_DEPLOYMENT)}
