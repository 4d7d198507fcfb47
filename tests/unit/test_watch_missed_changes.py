"""What lists find and no event tells is counted by kind, for the kinds that are watched."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.support.fleet_objects import node
from tonnage.catalog.load import load_catalog
from tonnage.fit.corrections import UNCORRECTED
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Kind, Listing, Object
from tonnage.reconcile.looks import Looks
from tonnage.reconcile.newborns import Newborns
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.priority import Priority
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.watch import missed_changes
from tonnage.watch.echoes import Echoes
from tonnage.watch.lists import relist_fleet, resync
from tonnage.watch.missed_changes import MissedChanges
from tonnage.watch.resting import RestingObjects
from tonnage.watch.router import EventRouter


class Cluster:
    """What lists show, and an operator that is told of some of it."""

    def __init__(self, *watched: Kind) -> None:
        self.objects: dict[Kind, list[Object]] = {NODES: [], INFERENCE_DEPLOYMENTS: []}
        self.fleet = FleetState(load_catalog(), lambda: None, lambda: None, lambda _: None)
        self.specs: SeenObjects[int] = SeenObjects(lambda *_: None, lambda _: None)
        self.missed: dict[str, int] = {}
        self.looks = Looks(lambda: datetime.now(UTC))
        self.counted = asyncio.Event()
        self.changes = MissedChanges(self.fleet, self.specs, watched, self.tell)
        self.router = EventRouter(
            self,
            self.looks,
            Echoes(lambda _: None),
            Newborns(),
            self.fleet,
            self.specs,
            relist=asyncio.Event(),
            resync=asyncio.Event(),
            observer=self,
        )

    async def list(self, kind: Kind) -> list[Object]:
        return self.objects.get(kind, [])

    async def each(self, wanted: Listing, take: Callable[[Object], object]) -> None:
        for found in self.objects.get(wanted.kind, []):
            take(found)

    def tell(self, plural: str, changes: int) -> None:
        self.missed[plural] = changes
        self.counted.set()

    def add(self, _: object, __: Priority = Priority.EVENT) -> None:
        """The work queue, as far as a resync needs one."""

    def add_after(self, _: object, seconds: float) -> None:
        """The same, as far as the router does."""

    def event_seen(self, plural: str) -> None:
        """Nobody looks."""

    async def lists(self) -> None:
        await relist_fleet(self, self.fleet, self.looks)  # type: ignore[arg-type] # only lists
        resting = RestingObjects(self.looks, self.fleet, lambda: UNCORRECTED)
        await resync(self, self.fleet, self.add, self.specs, self.looks, resting)  # type: ignore[arg-type] # only lists


def declared(name: str, generation: int) -> Object:
    metadata = {"name": name, "namespace": "chat", "uid": name, "generation": generation}
    return {"metadata": metadata | {"resourceVersion": "1"}}


async def test_a_silent_watch_is_counted_by_kind() -> None:
    cluster = Cluster(NODES, PODS, ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS)
    await cluster.lists()
    cluster.objects = {NODES: [node("a"), node("b")], INFERENCE_DEPLOYMENTS: [declared("m", 1)]}
    cluster.router.route(NODES, "ADDED", node("a"))
    await cluster.lists()
    cluster.changes.count()
    assert cluster.missed == {
        "nodes": 1,
        "pods": 0,
        "acceleratorpools": 0,
        "inferencedeployments": 1,
    }
    cluster.changes.count()
    assert set(cluster.missed.values()) == {0}


async def test_a_new_spec_that_was_told_is_not_missed_and_a_status_is_no_change() -> None:
    cluster = Cluster(INFERENCE_DEPLOYMENTS)
    await cluster.lists()
    cluster.router.route(INFERENCE_DEPLOYMENTS, "ADDED", declared("m", 1))
    cluster.objects[INFERENCE_DEPLOYMENTS] = [{**declared("m", 1), "status": {"replicas": 1}}]
    await cluster.lists()
    cluster.router.route(INFERENCE_DEPLOYMENTS, "DELETED", declared("m", 1))
    cluster.objects[INFERENCE_DEPLOYMENTS] = []
    await cluster.lists()
    cluster.changes.count()
    assert cluster.missed == {"inferencedeployments": 0}


async def test_what_a_watch_that_was_begun_anew_could_not_tell_is_not_missed() -> None:
    cluster = Cluster(NODES, INFERENCE_DEPLOYMENTS)
    cluster.objects = {NODES: [node("a")], INFERENCE_DEPLOYMENTS: [declared("m", 1)]}
    await cluster.lists()
    cluster.objects = {NODES: [], INFERENCE_DEPLOYMENTS: []}
    cluster.router.begun_anew("nodes")
    cluster.router.begun_anew("inferencedeployments")
    await cluster.lists()
    cluster.changes.count()
    assert cluster.missed == {"nodes": 0, "inferencedeployments": 0}


async def test_what_comes_from_elsewhere_than_a_watch_is_not_missed() -> None:
    cluster = Cluster(INFERENCE_DEPLOYMENTS)
    await cluster.lists()
    cluster.objects[NODES] = [node("of a file")]
    await cluster.lists()
    cluster.changes.count()
    assert cluster.missed == {"inferencedeployments": 0}


async def test_events_have_their_time_before_anything_counts_as_missed(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(missed_changes, "LATE_SECONDS", 0.0)
    cluster = Cluster(NODES)
    await cluster.lists()
    cluster.objects[NODES] = [node("a")]
    await cluster.lists()
    cluster.changes.listed()
    cluster.changes.listed()
    assert cluster.missed == {}
    await cluster.counted.wait()
    assert cluster.missed == {"nodes": 1}
