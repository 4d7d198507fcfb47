"""A day of events played against the operator's own code, as fast as the machine can."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from tests.simulator.account import Account
from tests.simulator.acts import HOUR, Event
from tests.simulator.auditor import AuditedSite
from tests.simulator.scene import Scene, look
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES

CHILDREN: Final = (DEPLOYMENTS, SERVICES)


@dataclass(frozen=True, slots=True)
class Day:
    """Pools by name (a group of nodes as in e2e/fleets) with prices, and what happens in order."""

    pools: Mapping[str, Mapping[str, Any]]
    prices: Mapping[str, str]
    events: tuple[Event, ...]
    hours: float = 24.0


async def play(day: Day) -> Account:
    """Let the day happen. Each full hour the operator looks at everything once more."""
    site = AuditedSite(day.pools)
    for pool in day.pools:
        site.declare(pool, day.prices[pool])
    events = sorted(day.events, key=attrgetter("at"))
    scene = await _happen(site, look(site), ())
    while site.seconds < day.hours * HOUR:
        scene = await _until_next(site, scene, events)
    site.account.count_requests(site.traffic.values())
    site.account.scalings = site.scalings.count
    return site.account


async def _until_next(site: AuditedSite, scene: Scene, events: list[Event]) -> Scene:
    """Let time pass until something happens, and then that."""
    hour = (site.seconds // HOUR + 1) * HOUR
    first = events[0].at if events else hour
    then = min(first, hour, site.next_moment())
    prices = {pool: float(course.now) for pool, course in site.prices.items()}
    site.account.pass_time(scene, prices, then - site.seconds)
    site.pass_time(then - site.seconds)
    due = [event for event in events if event.at <= then]
    del events[: len(due)]
    scene = await _happen(site, scene, due)
    if then == hour:
        await _look_again(site)
    return scene


async def _happen(site: AuditedSite, before: Scene, events: Iterable[Event]) -> Scene:
    """Let events happen and everybody come to rest."""
    for event in events:
        event.act.do(site)
    site.note_losses()
    await site.settle()
    after = look(site)
    site.account.compare(before, after)
    site.note_scene(after)
    return after


async def _look_again(site: AuditedSite) -> None:
    """What the operator does every few minutes, with no reason to change any pod; where nothing has
    happened since the look before, not even what it says of the pools is news."""
    calls, as_before = len(site.api.calls), site.is_as_left()
    await site.resync()
    written = (call for call in site.api.calls[calls:] if call.effective)
    site.account.writes_at_rest += sum(as_before or call.kind in CHILDREN for call in written)
    site.leave_as_it_is()
