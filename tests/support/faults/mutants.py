"""Operators broken on purpose: each is one mistake that somebody could make, and the tests of
faults must notice it. A mutant that survives is a hole in the tests.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from tests.support.api_server.behind_its_back import edit_at_each_call, put_others_at_each_call
from tests.support.api_server.late_watch import LATE_SECONDS
from tests.support.faults.crash_plans import Plans, crashes, errors, play
from tests.support.faults.late_leader import wake_up_late
from tests.support.faults.scenarios import SCENARIOS
from tests.support.faults.views import View, Viewers
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tonnage.fleet.fleet import Fleet
from tonnage.informers import reflector
from tonnage.informers.expectations import Expectations
from tonnage.informers.store import Store
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, NODES
from tonnage.kube.lease import LeaderElector
from tonnage.kube.protocol import ConflictError
from tonnage.manager.triggers import Triggers
from tonnage.reconcile import actions, execute, planner, reconciler
from tonnage.reconcile.actions import Action, Apply, Delete
from tonnage.reconcile.execute import Writer
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.observation.children import read_child
from tonnage.reconcile.reconciler import Reconciler
from tonnage.reconcile.rollout import placements
from tonnage.reconcile.rollout.drain import Drain
from tonnage.workloads import deployment, registry

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A mistake, and the test that is to notice it: it gives what it found wrong."""

    breaks: Break
    noticed_by: Callable[[], object]


def _by_plans(name: str, plans: Plans = crashes) -> Callable[[], object]:
    """The first that is wrong when the scenario is played undisturbed, then with these faults."""

    async def first() -> object:
        async for plan, wrong in play(SCENARIOS[name], plans):
            if wrong:
                return plan, wrong
        return None

    return lambda: asyncio.run(first())


def _by_view(name: str, view: View, orders: int = 1) -> Callable[[], object]:
    """The first that is wrong in some orders of events."""

    def first() -> object:
        viewers = Viewers(SCENARIOS[name])
        results = (viewers.find_wrong(view, f"{name} {view} {seed}") for seed in range(orders))
        return next(filter(None, results), None)

    return first


def _by_calls(name: str, view: View) -> Callable[[], object]:
    """What the view costs in calls, where that is more than with a true view."""
    return lambda: Viewers(SCENARIOS[name]).find_spare_calls(view, f"{name} {view}")


def _old_news_of_what_is_deleted() -> object:
    """What a store has of an object after an event that is older than its deletion.

    No run shows it: before the operator creates a child again, it reads the object live.
    """
    store: Store[str] = Store(lambda body: str(body["metadata"]["resourceVersion"]))
    metadata = {"namespace": "chat", "name": "llama", "uid": "u"}
    for event, version in (("ADDED", "5"), ("DELETED", "7"), ("MODIFIED", "6")):
        store.observe(event, {"metadata": {**metadata, "resourceVersion": version}})
    return store.get("chat", "llama")


def _by_what_others_put(name: str, child: str) -> Callable[[], object]:
    return lambda: asyncio.run(put_others_at_each_call(SCENARIOS[name], child))


async def _lose_a_node() -> list[str]:
    """Delete a node of which no pod changes, and return the objects that are ready then."""
    cluster = Cluster(MI300X)
    cluster.collects_orphans = False
    cluster.apply("llama", spec_of())
    await cluster.settle()
    (node,) = cluster.api.objects(NODES)
    cluster.leave(node["metadata"]["name"])
    await cluster.settle()
    status, _ = cluster.conditions()["Ready"]
    return ["llama"] if status == "True" else []


# The mistakes


def _delete_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    async def careless(writer: Writer, action: Action) -> None:
        if isinstance(action, Delete):
            body = await writer.get(action.kind, action.child.namespace, action.child.name)
            await writer.delete(action.kind, read_child(body))
        else:
            await _execute(writer, action)

    patch.setattr(execute, "_execute", careless)


def _apply_to_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    async def careless(writer: Writer, action: Action) -> None:
        await _execute(writer, _without_uid(action))

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
    async def careless(writer: Writer, observation: object, new: Apply) -> None:
        await writer.apply(new.kind, new.body)

    patch.setattr(execute, "_create", careless)


def _own_no_deployment(patch: pytest.MonkeyPatch) -> None:
    render = registry.render_workload

    def ownerless(*given: Any, **named: Any) -> Any:
        rendered = render(*given, **named)
        metadata = {**rendered["metadata"], "ownerReferences": []}
        return {**rendered, "metadata": metadata}

    patch.setattr("tonnage.reconcile.rollout.strategy.render_workload", ownerless)


def _name_by_chance(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(deployment, "deployment_name", lambda *_: f"llama-{next(numbers)}")


def _write_every_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(actions, "_contains", lambda *_: False)


def _come_back_never(patch: pytest.MonkeyPatch) -> None:
    reconcile = Reconciler.reconcile

    async def forgetful(self: Reconciler, key: Key) -> Requeue:
        await reconcile(self, key)
        return Requeue()

    patch.setattr(Reconciler, "reconcile", forgetful)


def _skip_waiting_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FleetState, "waiting_keys", lambda _: [])


def _keep_what_the_dead_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FleetState, "release", lambda *_: None)


def _delete_what_the_cache_lacks(patch: pytest.MonkeyPatch) -> None:
    make_plan = planner.make_plan

    def hasty(observation: Any, fleet: Any, *given: Any) -> Any:
        plan = make_plan(observation, fleet, *given)
        pools = {pool.name for pool in fleet.pools()}
        lost = [
            deployment for deployment in observation.deployments if deployment.pool not in pools
        ]
        deletes = (Delete(DEPLOYMENTS, one.child) for one in lost)
        return replace(plan, actions=(*deletes, *plan.actions))

    patch.setattr(planner, "make_plan", hasty)


def _let_go_of_the_old_at_once(patch: pytest.MonkeyPatch) -> None:
    def hasty(key: Key, old: Iterable[Any], *_: object) -> Drain:
        deletes = (Delete(DEPLOYMENTS, deployment.child) for deployment in old)
        return Drain(tuple(deletes), ())

    patch.setattr(placements, "shift_replicas", hasty)


def _work_on_without_the_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderElector, "check", lambda _: None)


def _keep_ghosts_at_a_relist(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "_absent", lambda *_: [])


def _let_older_versions_replace_newer(patch: pytest.MonkeyPatch) -> None:
    put = Store._put

    def careless(self: Any, obj: Any, *, is_own: bool = False) -> None:
        metadata = obj["metadata"]
        place = metadata.get("namespace") or "", metadata["name"]
        entry = self._entries.get(place)
        if entry is not None:
            self._entries[place] = replace(entry, version=0)
        put(self, obj, is_own=is_own)

    patch.setattr(Store, "_put", careless)


def _store_no_own_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stores, "put_written", lambda *_: None)
    patch.setattr(Stores, "remove_deleted", lambda *_: None)


def _lose_events_of_writes_in_flight(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def lose(self: Any, namespace: str | None, name: str) -> Iterator[None]:
        self._waiting_events[namespace or "", name] = []
        try:
            yield
        finally:
            del self._waiting_events[namespace or "", name]

    patch.setattr(Store, "write_in_flight", lose)


def _forget_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Expectations, "is_deleted", lambda *_: False)


def _create_for_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    async def still_exists(*_: object) -> bool:
        return True

    patch.setattr(Writer, "still_exists", still_exists)


def _expect_no_event(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Expectations, "expect_event", lambda *_: None)


def _forget_in_the_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "owned_by", lambda self, owner: _owned_by(self, owner)[:-1])


def _verify_nothing(patch: pytest.MonkeyPatch) -> None:
    async def do_nothing(*_: object) -> int:
        return 0

    patch.setattr(reflector, "verify", do_nothing)


def _call_every_store_verified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "has_version", lambda *_: True)


def _ignore_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Triggers, "_wake_owners", lambda *_: None)


def _tell_before_it_is_done(patch: pytest.MonkeyPatch) -> None:
    carry_out, report = Reconciler._execute, reconciler.report
    reported: dict[Key, object] = {}

    async def report_once(writer: Any, events: Any, observation: Any, status: Any) -> None:
        now = observation.resource_version, status
        if reported.get(observation.key) != now:
            await report(writer, events, observation, status)
            reported[observation.key] = now

    async def boast(self: Reconciler, observation: Any, plan: Any) -> Any:
        await self._report(observation, plan.status)
        return await carry_out(self, observation, plan)

    patch.setattr(reconciler, "report", report_once)
    patch.setattr(Reconciler, "_execute", boast)


def _ignore_lost_nodes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fleet, "_affected_owners", lambda *_: set())


_execute = execute._execute
_owned_by = Store.owned_by

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
    "swallows a 409": Mutant(
        _swallow_conflicts, _by_plans("bad spec", errors(ConflictError("409")))
    ),
    "creates Deployments without an owner": Mutant(_own_no_deployment, _by_plans("create")),
    "names a child otherwise each time": Mutant(_name_by_chance, _by_plans("create")),
    "writes what is there already": Mutant(_write_every_time, _by_plans("create")),
    "forgets to come back": Mutant(_come_back_never, _by_plans("take the name once it is free")),
    "wakes no waiting object when GPUs are free": Mutant(
        _skip_waiting_queue, _by_plans("give way to who waits")
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
    "keeps ghosts at a relist": Mutant(
        _keep_ghosts_at_a_relist,
        _by_view("leave a pool whose nodes are gone", View("gone", (NODES,))),
    ),
    "lets an older version replace a newer one": Mutant(
        _let_older_versions_replace_newer,
        _by_calls("re-plan to another pool", View("disordered", (DEPLOYMENTS,))),
    ),
    "does not store its own writes": Mutant(
        _store_no_own_write,
        _by_calls("re-plan to another pool", View("late", (DEPLOYMENTS,))),
    ),
    "loses events that come while it writes": Mutant(
        _lose_events_of_writes_in_flight,
        lambda: asyncio.run(edit_at_each_call(SCENARIOS["scale up"], watch_is_quick=True)),
    ),
    "lets older news bring back what is deleted": Mutant(
        _forget_deletions, _old_news_of_what_is_deleted
    ),
    "creates children of what is gone": Mutant(
        _create_for_what_is_gone,
        _by_view("delete for good", View("late", (INFERENCE_DEPLOYMENTS,))),
    ),
    "waits for events of its writes for ever": Mutant(
        _expect_no_event, _by_view("create", View("silent", (DEPLOYMENTS,), seconds=LATE_SECONDS))
    ),
    "forgets objects in an index": Mutant(_forget_in_the_index, _by_plans("create")),
    "verifies no store": Mutant(
        _verify_nothing, _by_view("scale up", View("silent", (INFERENCE_DEPLOYMENTS,)))
    ),
    "leaves what lists show to events that do not come": Mutant(
        _call_every_store_verified,
        _by_view("use nodes that are given back", View("silent", (NODES,))),
    ),
    "wakes nothing when an object changes": Mutant(_ignore_changes, _by_plans("scale up")),
    "writes the status before the children": Mutant(
        _tell_before_it_is_done, _by_plans("adopt no Deployment of others")
    ),
    "wakes no owner when nodes are lost": Mutant(
        _ignore_lost_nodes, lambda: asyncio.run(_lose_a_node())
    ),
}
