"""Operators broken on purpose: each is one mistake that somebody could make, and the tests of
faults must notice it. A mutant that survives is a hole in the tests.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from tests.support.behind_its_back import put_others_at_each_call
from tests.support.crash_plans import Plans, crashes, errors, play
from tests.support.first_children import find_second_firsts
from tests.support.late_leader import wake_up_late
from tests.support.late_watch import LATE_SECONDS
from tests.support.scenarios import SCENARIOS
from tests.support.views import View, Viewers
from tonnage.fleet.fleet import Fleet
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, NODES
from tonnage.kube.lease import LeaderElector
from tonnage.kube.protocol import ConflictError, KubeApi, Object
from tonnage.reconcile import actions, execute, placements, planner, reconciler
from tonnage.reconcile.actions import Action, Apply, Delete
from tonnage.reconcile.handover import Handover
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.looks import Looks
from tonnage.reconcile.newborns import Newborns
from tonnage.reconcile.reconciler import Reconciler
from tonnage.render import deployment
from tonnage.runtime.fleet_state import FleetList, FleetState
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.runtime.waiting_line import WaitingLine
from tonnage.watch import process
from tonnage.watch.echoes import Echoes

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A mistake, and the test that is to notice it: it gives what it found wrong."""

    breaks: Break
    noticed_by: Callable[[], object]


def _by_plans(name: str, plans: Plans = crashes) -> Callable[[], object]:
    """The first that is wrong when the scenario is played undisturbed, then with these faults."""

    async def first() -> object:
        async for told, wrong in play(SCENARIOS[name], plans):
            if wrong:
                return told, wrong
        return None

    return lambda: asyncio.run(first())


def _by_view(name: str, view: View) -> Callable[[], object]:
    return lambda: Viewers(SCENARIOS[name]).find_wrong(view, f"{name} {view}")


def _by_what_others_put(name: str, child: str) -> Callable[[], object]:
    return lambda: asyncio.run(put_others_at_each_call(SCENARIOS[name], child))


# The mistakes


def _delete_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    async def careless(api: KubeApi, action: Action) -> None:
        if isinstance(action, Delete):
            found = await api.get(action.kind, action.namespace, action.child.name)
            version = found["metadata"]["uid"], found["metadata"]["resourceVersion"]
            await api.delete(action.kind, action.namespace, action.child.name, *version)
        else:
            await _execute(api, action)

    patch.setattr(execute, "_execute", careless)


def _apply_to_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    async def careless(api: KubeApi, action: Action) -> None:
        await _execute(api, _without_uid(action))

    patch.setattr(execute, "_execute", careless)


def _without_uid(action: Action) -> Action:
    if not isinstance(action, Apply):
        return action
    metadata = {name: value for name, value in action.body["metadata"].items() if name != "uid"}
    return replace(action, body={**action.body, "metadata": metadata})


def _swallow_conflicts(patch: pytest.MonkeyPatch) -> None:
    tell = reconciler.report

    async def careless(*given: Any) -> None:
        with suppress(ConflictError):
            await tell(*given)

    patch.setattr(reconciler, "report", careless)


def _take_a_new_name_by_force(patch: pytest.MonkeyPatch) -> None:
    async def careless(api: KubeApi, observation: object, new: Apply) -> None:
        await api.apply(new.kind, new.body)

    patch.setattr(execute, "_make", careless)


def _make_the_first_child_by_force(patch: pytest.MonkeyPatch) -> None:
    async def careless(api: KubeApi, children: Iterable[Apply]) -> list[Object]:
        return [await api.apply(child.kind, child.body) for child in children]

    patch.setattr(reconciler, "make_children", careless)


def _take_what_has_children_for_new(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Newborns, key: Key, event_type: str | None, body: Object) -> None:
        self._born[key] = body

    patch.setattr(Newborns, "tell", careless)
    patch.setattr(Newborns, "outgrow", lambda *_: None)


def _own_no_deployment(patch: pytest.MonkeyPatch) -> None:
    render = deployment.render_deployment

    def ownerless(*given: Any, **named: Any) -> Any:
        rendered = render(*given, **named)
        metadata = {**rendered["metadata"], "ownerReferences": []}
        return {**rendered, "metadata": metadata}

    patch.setattr("tonnage.reconcile.rollout.render_deployment", ownerless)


def _name_by_chance(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(deployment, "deployment_name", lambda *_: f"llama-{next(numbers)}")


def _write_every_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(actions, "_has", lambda *_: False)


def _come_back_never(patch: pytest.MonkeyPatch) -> None:
    reconcile = Reconciler.reconcile

    async def forgetful(self: Reconciler, key: Key) -> Requeue:
        await reconcile(self, key)
        return Requeue.never()

    patch.setattr(Reconciler, "reconcile", forgetful)


def _wake_nobody_for_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitingLine, "keys", lambda _: [])


def _keep_what_the_dead_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FleetState, "release", lambda *_: None)


def _delete_what_the_cache_lacks(patch: pytest.MonkeyPatch) -> None:
    make_plan = planner.make_plan

    def hasty(observation: Any, fleet: Any, *given: Any) -> Any:
        plan = make_plan(observation, fleet, *given)
        pools = {pool.name for pool in fleet.pools()}
        lost = [found for found in observation.deployments if found.pool not in pools]
        deletes = (Delete(DEPLOYMENTS, observation.key.namespace, one.child) for one in lost)
        return replace(plan, actions=(*deletes, *plan.actions))

    patch.setattr(planner, "make_plan", hasty)


def _let_go_of_the_old_at_once(patch: pytest.MonkeyPatch) -> None:
    def hasty(key: Key, old: Iterable[Any], *_: object) -> Handover:
        deletes = (Delete(DEPLOYMENTS, key.namespace, found.child) for found in old)
        return Handover(tuple(deletes), ())

    patch.setattr(placements, "hand_over", hasty)


def _work_on_without_the_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderElector, "check", lambda _: None)


def _believe_in_ghosts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SeenObjects, "_lose", lambda *_: False)


def _list_nothing_again(patch: pytest.MonkeyPatch) -> None:
    async def do_nothing(*_: object) -> None:
        """No object is looked at again."""

    patch.setattr(process, "resync", do_nothing)


def _know_better_than_lists(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Looks, "listed", lambda *_: None)


def _leave_what_lists_show_to_events(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FleetList, "is_told", lambda *_: True)


def _pass_over_whatever_lists_show(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Looks, "would_rest", lambda *_: True)


def _take_news_for_echoes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Looks, "tell", lambda *_: False)


def _tell_before_it_is_done(patch: pytest.MonkeyPatch) -> None:
    carry_out, tell = Reconciler._carry_out, reconciler.report
    told: dict[Key, object] = {}

    async def tell_once(api: Any, events: Any, observation: Any, status: Any) -> None:
        now = observation.resource_version, status
        if told.get(observation.key) != now:
            await tell(api, events, observation, status)
            told[observation.key] = now

    async def boast(self: Reconciler, api: KubeApi, observation: Any, plan: Any) -> Any:
        await self._report(api, observation, plan.status)
        return await carry_out(self, api, observation, plan)

    patch.setattr(reconciler, "report", tell_once)
    patch.setattr(Reconciler, "_carry_out", boast)


def _miss_no_echo(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Echoes, "expect", lambda *_: None)


def _wake_nobody_for_lost_nodes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fleet, "_concerned", lambda *_: set())


_execute = execute._execute

MUTANTS: Final = {
    "deletes whatever has the name": Mutant(
        _delete_whatever_is_there, _by_what_others_put("re-plan to another pool", "llama-l40s")
    ),
    "applies to whatever has the name": Mutant(
        _apply_to_whatever_is_there, _by_what_others_put("roll on a full pool", "llama-mi300x")
    ),
    "takes a new name by force": Mutant(
        _take_a_new_name_by_force, _by_plans("adopt no Deployment of others")
    ),
    "makes the first child by force": Mutant(
        _make_the_first_child_by_force, _by_what_others_put("create", "llama-mi300x")
    ),
    "takes an object that has children for a new one": Mutant(
        _take_what_has_children_for_new, find_second_firsts
    ),
    "swallows a 409": Mutant(
        _swallow_conflicts, _by_plans("bad spec", errors(ConflictError("409")))
    ),
    "makes Deployments that nobody owns": Mutant(_own_no_deployment, _by_plans("create")),
    "names a child otherwise each time": Mutant(_name_by_chance, _by_plans("create")),
    "writes what is there already": Mutant(_write_every_time, _by_plans("create")),
    "forgets to come back": Mutant(_come_back_never, _by_plans("take the name once it is free")),
    "wakes nobody when there is room": Mutant(
        _wake_nobody_for_room, _by_plans("give way to who waits")
    ),
    "keeps what a deleted object held": Mutant(
        _keep_what_the_dead_held, _by_plans("give way to who waits")
    ),
    "deletes what its cache does not know": Mutant(
        _delete_what_the_cache_lacks, _by_plans("wait for nodes that may come back")
    ),
    "lets go of the old before the new serves": Mutant(
        _let_go_of_the_old_at_once, _by_plans("re-plan to another pool")
    ),
    "works on without the lease": Mutant(_work_on_without_the_lease, wake_up_late),
    "believes in nodes that are gone": Mutant(
        _believe_in_ghosts,
        _by_view("leave a pool whose nodes are gone", View("gone", (NODES,))),
    ),
    "leaves what lists show to events that do not come": Mutant(
        _leave_what_lists_show_to_events,
        _by_view("use nodes that are given back", View("silent", (NODES,))),
    ),
    "takes news for an echo of its own writes": Mutant(
        _take_news_for_echoes, _by_plans("scale up")
    ),
    "believes what it read before whatever lists show": Mutant(
        _know_better_than_lists, _by_view("scale up", View("silent", (INFERENCE_DEPLOYMENTS,)))
    ),
    "passes over what lists show to have changed": Mutant(
        _pass_over_whatever_lists_show,
        _by_view("scale up", View("silent", (INFERENCE_DEPLOYMENTS,))),
    ),
    "never lists objects again": Mutant(
        _list_nothing_again, _by_view("scale up", View("silent", (INFERENCE_DEPLOYMENTS,)))
    ),
    "writes the status before the children": Mutant(
        _tell_before_it_is_done, _by_plans("take the request for it back")
    ),
    "waits for events of its writes for ever": Mutant(
        _miss_no_echo, _by_view("tell requests apart", View("silent", (INFERENCE_DEPLOYMENTS,)))
    ),
    "wakes nobody when nodes are lost": Mutant(
        _wake_nobody_for_lost_nodes,
        _by_view("wait for nodes that may come back", View("late", (NODES,), seconds=LATE_SECONDS)),
    ),
}
