"""A scenario played by the operator's process with a view of the cluster that is not true.

The process is the real one in virtual time; what its watch does to the events of one kind, or of
all, is made up. Whatever it sees, it deletes and makes nothing that it would not have deleted or
made with a true view, and lists put right what it missed.
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tests.support.api_server.api_calls import WRITES, Call
from tests.support.api_server.late_watch import disordered, doubled, late, lossy, silent
from tests.support.faults.crash_plans import compare_ends, find_wrong
from tests.support.faults.live_operator import LiveCluster, Replica
from tests.support.faults.scenarios import Scenario
from tests.support.faults.virtual_time import run_in_virtual_time
from tests.support.in_memory.end_state import CHILDREN, ServingCount, end_state
from tonnage import delays
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, LEASES
from tonnage.kube.protocol import Kind, Object
from tonnage.manager.scope import OPTIONAL, WATCHED

RESYNC: Final = 1.2 * delays.RESYNC
"""Seconds within which everything is looked at again, with all jitter."""

GAP_SECONDS: Final = 300.0
"""Longest time that a watch misses before it is begun anew; the next resync counts from then."""

VIEWS_EACH: Final = 3
"""Views that each scenario is played with, unless more are asked for."""

SPARE_CHILD_WRITES: Final = 1
"""A replica count that is followed in two steps instead of one."""

OLD_SECONDS: Final = 20.0
"""Longest time that reads are behind."""

Disturb = Callable[[Replica, Kind, random.Random], None]
"""What happens to the watch of one kind, or to its reads."""


def _gone(replica: Replica, kind: Kind, chance: random.Random) -> None:
    replica.watch.miss_until_gone(kind, chance.uniform(1, GAP_SECONDS))


def _outdated(replica: Replica, kind: Kind, chance: random.Random) -> None:
    replica.reads.lag(kind, chance.uniform(0.1, OLD_SECONDS))


_DISTURBED: Final[dict[str, Disturb]] = {
    "late": lambda replica, kind, chance: replica.watch.see(kind, late(chance)),
    "lossy": lambda replica, kind, chance: replica.watch.see(kind, lossy(chance)),
    "doubled": lambda replica, kind, chance: replica.watch.see(kind, doubled(chance)),
    "disordered": lambda replica, kind, chance: replica.watch.see(kind, disordered(chance)),
    "silent": lambda replica, kind, _: replica.watch.see(kind, silent),
    "gone": _gone,
    "outdated": _outdated,
}


@dataclass(frozen=True)
class View:
    """What the operator sees: the watches, or the reads, of these kinds are disturbed so.

    After so many seconds all must be as it should be: at the latest after a list of everything, or
    after some lists where each of several steps needs one.
    One who `writes_again` what is or was there does not see yet what became of it.
    """

    how: str
    kinds: tuple[Kind, ...]
    seconds: float = RESYNC
    writes_again: bool = False

    def __str__(self) -> str:
        return f"{self.how} {' '.join(kind.plural for kind in self.kinds)}"

    def take_effect(self, replica: Replica, chance: random.Random) -> None:
        for kind in self.kinds:
            _DISTURBED[self.how](replica, kind, chance)


def _view(how: str, kinds: tuple[Kind, ...]) -> View:
    match how:
        case "gone":  # the list that ends the gap has one of its own behind it
            return View(how, kinds, GAP_SECONDS + RESYNC)
        case "lossy" if len(kinds) > 1:  # each step of a rollout may wait for a list
            return View(how, kinds, 3 * RESYNC)
        case "silent" if len(kinds) > 1:  # a group is known from its set and from its pods
            return View(how, kinds, 2 * RESYNC)
        case "outdated":
            return View(how, kinds, 3 * RESYNC, writes_again=True)
    return View(how, kinds)


TRUE: Final = View("true", ())

_REQUIRED: Final = tuple(kind for kind in WATCHED if kind not in OPTIONAL)

VIEWS: Final = tuple(
    _view(how, kinds) for how in _DISTURBED for kinds in (*((kind,) for kind in _REQUIRED), WATCHED)
)

OPTIONAL_VIEWS: Final = tuple(_view(how, (kind,)) for how in _DISTURBED for kind in OPTIONAL)


@dataclass(frozen=True)
class Played:
    """What a run came to: its end, what is wrong with that by itself, children that were made,
    changed or deleted, and how often; `calls` are live looks at objects, and writes."""

    end: Object
    wrong: list[str]
    children: frozenset[tuple[str, str, str | None]]
    child_writes: int
    calls: int

    def compare(self, true: "Played", spare_writes: float = SPARE_CHILD_WRITES) -> list[str]:
        """What differs from the end with a true view."""
        problems = [*compare_ends(self.end, true.end), *self.wrong]
        problems += [
            f"on old data: {verb} {kind} {name}" for verb, kind, name in self._beyond(true)
        ]
        if self.child_writes > true.child_writes + spare_writes:
            problems.append(
                f"children are written {self.child_writes} times, not {true.child_writes}"
            )
        return problems

    def _beyond(self, true: "Played") -> list[tuple[str, str, str | None]]:
        return sorted(self.children - true.children, key=str)


class Viewers:
    """Operators that see a scenario each in their own way. Each has an event loop of its own."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._start = asyncio.run(scenario.prepare())
        self._true = self._play(TRUE, "true")

    def wrong_with_the_truth(self) -> list[str]:
        """What is wrong where nothing is disturbed; the loop by itself has to come to the same."""
        loop = asyncio.run(self._play_loop())
        return [*compare_ends(self._true.end, loop), *self._true.wrong]

    def find_spare_calls(self, view: View, seed: object) -> str:
        """How many calls the view costs, where these are more than a true view costs."""
        calls = self._play(view, seed).calls
        return f"{calls} calls, not {self._true.calls}" if calls > self._true.calls else ""

    def find_wrong(self, view: View, seed: object) -> list[str]:
        """What is wrong with what this view led to."""
        played = self._play(view, seed)
        if not view.writes_again:
            return played.compare(self._true)
        before = {
            ("apply", kind.kind, body["metadata"]["name"])
            for kind in CHILDREN
            for body in self._start.api.objects(kind)
        }
        true = replace(self._true, children=self._true.children | before)
        return played.compare(true, spare_writes=math.inf)

    async def _play_loop(self) -> Object:
        cluster = await self._start.copy()
        await self._scenario.play(cluster)
        return end_state(cluster.api)

    def _play(self, view: View, seed: object) -> Played:
        return run_in_virtual_time(lambda: self._live(view, random.Random(str(seed))), seed)

    async def _live(self, view: View, chance: random.Random) -> Played:
        start = self._start
        hub = start.hub.copy()
        async with LiveCluster.led(start.api.copy(), start.behaviours, hub=hub) as cluster:
            serving, calls = ServingCount(cluster.api), len(cluster.api.calls)
            view.take_effect(cluster.replicas[0], chance)
            await self._scenario.play(cluster)
            await asyncio.sleep(view.seconds)
            writes = [
                call
                for call in cluster.api.calls[calls:]
                if call.effective and call.kind in CHILDREN
            ]
            return Played(
                end=end_state(cluster.api),
                wrong=find_wrong(self._scenario, cluster, serving),
                children=frozenset(
                    (call.verb, call.kind.kind, call.name)
                    for call in writes
                    if call.verb != "scale"
                ),
                child_writes=len(writes),
                calls=sum(map(_is_for_objects, cluster.api.calls[calls:])),
            )


def _is_for_objects(call: Call) -> bool:
    if call.kind == LEASES:
        return False
    return call.verb in WRITES or (call.verb, call.kind) == ("get", INFERENCE_DEPLOYMENTS)
