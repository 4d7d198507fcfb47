"""A scenario played with one fault in it, at each place where there can be one.

A plan is one such fault. What it ends in is held against the undisturbed run and against what no
end may break; each problem is a sentence, so that a test can recognise a broken operator by it.
"""

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.api_server.fake_api import Crash
from tests.support.faults.scenarios import Scenario
from tests.support.in_memory.cluster import Cluster, write_count
from tests.support.in_memory.end_state import (
    ServingCount,
    end_state,
    find_faults,
    find_other_ends,
    find_unrest,
    find_writes_of_another_look,
)
from tonnage.kube.kinds import (
    INFERENCE_POOLS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
)
from tonnage.kube.protocol import NotFoundError, Object, TransientError
from tonnage.workloads.registry import WORKLOAD_KINDS

_CHILDREN: Final = (*WORKLOAD_KINDS, SERVICES, INFERENCE_POOLS, POD_DISRUPTION_BUDGETS, JOBS)

SPARE_CHILD_WRITES: Final = 1
"""What a fault may cost beyond the undisturbed run: the write that it hit is done again."""
SPARE_WRITES: Final = 3
"""That write, and statuses of what the undisturbed run passes through unseen."""


@dataclass(frozen=True)
class Undisturbed:
    """How a scenario goes when nothing fails: its end, and what is asked of the API server."""

    end: Object
    writes: int
    calls: int
    child_writes: int


@dataclass(frozen=True)
class Plan:
    """One fault at the write or call of this number."""

    description: str
    error: BaseException
    write: int | None = None
    call: int | None = None
    after: bool = False

    def put_into(self, cluster: Cluster) -> None:
        """Let it happen, counted from here."""
        api, error = cluster.api, copy.copy(self.error)
        if self.write is not None:
            api.fault_at_write(api.write_count + self.write, error, after=self.after)
        if self.call is not None:
            api.fault_at_call(api.call_count + self.call, error)


Plans = Callable[[Undisturbed], Iterator[Plan]]


def crashes(undisturbed: Undisturbed) -> Iterator[Plan]:
    """At each write: dead before it, dead after it, and done with its answer lost."""
    lost = TransientError("lost")
    for write in range(1, undisturbed.writes + 1):
        yield Plan(f"crash before write {write}", Crash(), write)
        yield Plan(f"crash after write {write}", Crash(), write, after=True)
        yield Plan(f"lost answer to write {write}", lost, write, after=True)


def errors(error: BaseException) -> Plans:
    """Each call fails so, reads included."""
    return lambda undisturbed: (
        Plan(f"{error} to call {call}", error, call=call)
        for call in range(1, undisturbed.calls + 1)
    )


async def play(scenario: Scenario, plans: Plans) -> AsyncIterator[tuple[str, list[str]]]:
    """The scenario undisturbed, then with each plan; what was played, and what was wrong with it.

    The undisturbed run is that of one operator from the first object on; each plan begins with an
    operator that was begun anew on what was there before.
    """
    first = await scenario.prepare()
    start = await first.copy()
    serving = ServingCount(first.api)
    asked = first.api.write_count, first.api.call_count, write_count(first.api, _CHILDREN)
    await scenario.play(first)
    undisturbed = Undisturbed(
        end=end_state(first.api),
        writes=first.api.write_count - asked[0],
        calls=first.api.call_count - asked[1],
        child_writes=write_count(first.api, _CHILDREN) - asked[2],
    )
    yield "undisturbed", [*find_wrong(scenario, first, serving), *await find_unrest(first)]
    for plan in plans(undisturbed):
        yield plan.description, await _try_out(scenario, plan, await start.copy(), undisturbed)


async def _try_out(
    scenario: Scenario, plan: Plan, cluster: Cluster, undisturbed: Undisturbed
) -> list[str]:
    api = cluster.api
    serving = ServingCount(api)
    before, child_before = api.write_count, write_count(api, _CHILDREN)
    plan.put_into(cluster)
    await scenario.play(cluster)
    if isinstance(plan.error, NotFoundError):  # what was falsely said to be gone, a resync finds
        await cluster.resync()
        await cluster.wait(scenario.seconds)
    child_writes = write_count(api, _CHILDREN) - child_before
    writes = api.write_count - before
    bounds = []
    if child_writes > undisturbed.child_writes + SPARE_CHILD_WRITES:
        bounds.append(f"children are written {child_writes} times, not {undisturbed.child_writes}")
    if writes > undisturbed.writes + SPARE_WRITES:
        bounds.append(f"{writes} writes are asked for, not {undisturbed.writes}")
    wrong = find_wrong(scenario, cluster, serving)
    unrest = await find_writes_of_another_look(cluster)
    return [*compare_ends(end_state(api), undisturbed.end), *wrong, *bounds, *unrest]


def find_wrong(scenario: Scenario, cluster: Cluster, serving: ServingCount) -> list[str]:
    """What the scenario never ends in, whatever an undisturbed run did."""
    problems = [
        *find_other_ends(cluster.api, scenario.ends, scenario.bystanders),
        *find_faults(cluster.api),
    ]
    if serving.least < scenario.serving:
        problems.append(f"only {serving.least} replicas serve for a while, not {scenario.serving}")
    return problems


def compare_ends(end: Object, wanted: Object) -> list[str]:
    """Where two end states differ."""
    return [
        f"{name} ends as {end.get(name)}, not {wanted.get(name)}"
        for name in sorted(end.keys() | wanted.keys())
        if end.get(name) != wanted.get(name)
    ]
