"""How much of the cluster is served, and a file in the place of its nodes."""

from collections.abc import Callable

import pytest

from tests.support.fake_api import FakeApi
from tests.support.fleet_objects import node
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.load import load_catalog
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.labels import select_labels
from tonnage.kube.protocol import Kind, KindMissingError, Object, Selection, TransientError
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.priority import Priority
from tonnage.runtime.settings import Settings
from tonnage.watch.fleet_file import FleetFile, FleetFileError
from tonnage.watch.scope import labels_of, scope_of
from tonnage.watch.start_up import MissingKindsError, find_kinds
from tonnage.watch.triggers import Triggers


def nothing(path: str) -> list[Object]:
    raise FleetFileError(f"{path} is not there")


EVERYTHING = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS, DEPLOYMENTS, SERVICES, PODS, NODES)
SCOPES = {
    "the whole cluster": (
        Settings(),
        {kind: [None] for kind in EVERYTHING},
        (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS),
    ),
    "namespaces": (
        Settings(namespaces=("chat", "search")),
        {kind: ["chat", "search"] if kind.namespaced else [None] for kind in EVERYTHING},
        (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS),
    ),
    "Roles only": (
        Settings(namespaces=("chat", "search"), fleet_file="fleet.yaml"),
        {kind: ["chat", "search"] for kind in EVERYTHING if kind.namespaced},
        (INFERENCE_DEPLOYMENTS,),
    ),
}


@pytest.mark.parametrize(("settings", "want", "by_kopf"), SCOPES.values(), ids=SCOPES)
def test_a_scope_says_which_kinds_are_listed_and_where(
    settings: Settings, want: dict[Kind, list[str | None]], by_kopf: tuple[Kind, ...]
) -> None:
    scope = scope_of(settings, nothing)
    selected: dict[Kind, list[str | None]] = {}
    for selection in scope.selections():
        selected.setdefault(selection.kind, []).append(selection.namespace)
    assert selected == want
    assert scope.watched_by_kopf == by_kopf
    assert {each.kind for each in scope.selections(by_kopf)} == set(by_kopf)


def test_only_objects_that_count_are_asked_for() -> None:
    selections = {each.kind: each for each in scope_of(Settings(), nothing).selections()}
    for kind in (DEPLOYMENTS, SERVICES):
        assert select_labels(selections[kind].labels or {}) == (
            "app.kubernetes.io/managed-by=tonnage,!tonnage.dev/shard"
        )
    assert not selections[PODS].labels, "pods of every shard take GPUs"
    assert selections[PODS].fields == "status.phase!=Succeeded,status.phase!=Failed"
    assert selections[NODES] == Selection(NODES, labels={"tonnage.dev/shard": None})


def test_every_kind_that_is_asked_for_has_a_store() -> None:
    stores = Stores()
    for selection in scope_of(Settings(), nothing).selections():
        assert len(stores.of(selection.kind)) == 0


# The fleet file


class Files:
    """What the file holds by turns; an error is raised."""

    def __init__(self, *contents: list[Object] | FleetFileError) -> None:
        self.contents = list(contents)

    def read(self, _: str) -> list[Object]:
        found = self.contents.pop(0)
        if isinstance(found, FleetFileError):
            raise found
        return found


NODE = node() | {"kind": "Node"}
NODE["metadata"]["resourceVersion"] = ""
BROKEN = FleetFileError("fleet.yaml, line 3: is not YAML")


@pytest.fixture
def changing(tmp_path) -> Callable[..., tuple[FleetFile, Callable[[], None]]]:
    """A fleet file that reads these contents, and what makes it look changed."""

    def make(*contents: list[Object] | FleetFileError) -> tuple[FleetFile, Callable[[], None]]:
        path = tmp_path / "fleet.yaml"
        path.write_text("0")

        def change() -> None:
            path.write_text(path.read_text() + "0")

        return FleetFile(str(path), Files(*contents).read), change

    return make


async def test_a_file_is_read_again_only_when_it_changed(changing) -> None:
    file, change = changing([NODE], [NODE, NODE])
    assert await file.refresh()
    assert not await file.refresh()
    change()
    assert await file.refresh()
    assert len(file.objects(NODES)) == 2


async def test_a_bad_file_leaves_the_last_good_one_and_says_why_once(changing, caplog) -> None:
    file, change = changing([NODE], BROKEN, BROKEN, [NODE])
    await file.refresh()
    for _ in range(2):
        change()
        assert not await file.refresh()
        assert file.objects(NODES) == [NODE]
        assert file.problem == str(BROKEN)
    change()
    assert not await file.refresh()  # the same nodes as before
    assert file.problem is None
    assert [line for line in caplog.messages if "line 3" in line] == [
        "fleet file refused, the last good one counts: fleet.yaml, line 3: is not YAML"
    ]


async def test_without_any_good_file_it_is_waited_for(changing) -> None:
    file, _ = changing(BROKEN)
    await file.refresh()
    with pytest.raises(TransientError, match="line 3: is not YAML"):
        file.objects(NODES)


async def test_a_file_that_comes_later_is_read(tmp_path) -> None:
    path = tmp_path / "fleet.yaml"
    file = FleetFile(str(path), Files(BROKEN, BROKEN, [NODE]).read)
    assert not await file.refresh()
    assert not await file.refresh()
    path.write_text("0")
    assert await file.refresh()


class Filled:
    """Stores that are filled from a fleet file, and the fleet behind them."""

    def __init__(self) -> None:
        self.fleet = FleetState(load_catalog(), lambda: None, lambda: None, lambda _: None)
        self.stores = Stores(Triggers(NoQueue(), self.fleet, list).on_change)

    async def fill(self, file: FleetFile, shard: Shard = UNNAMED_SHARD) -> list[str]:
        """The names of the nodes that are known then."""
        await file.refresh()
        for kind in (NODES, ACCELERATOR_POOLS):
            file.fill(self.stores.of(kind), kind, labels_of(kind, shard))
        return [each.name for each in self.fleet.view().snapshot().nodes]


class NoQueue:
    """Nobody is woken here."""

    def add(self, key: Key, urgency: Priority = Priority.EVENT) -> None: ...

    def add_after(self, key: Key, seconds: float) -> None: ...


def named(name: str, gpus: int = 8, **labels: str) -> Object:
    body = node(name, uid=name, gpus=gpus) | {"kind": "Node"}
    metadata = {**body["metadata"], "labels": labels, "resourceVersion": "7"}
    return body | {"metadata": metadata}


async def test_an_edited_node_counts_though_its_version_was_left_as_it_was(changing) -> None:
    file, change = changing([named("a", gpus=8)], [named("a", gpus=4)])
    filled = Filled()
    for gpus in (8, 4):
        assert await filled.fill(file) == ["a"]
        (found,) = filled.fleet.view().snapshot().nodes
        assert found.capacity == {"amd.com/gpu": gpus}
        change()


async def test_a_node_leaves_the_file_and_comes_back(changing) -> None:
    file, change = changing([named("a"), named("b")], [named("b")], [named("a"), named("b")])
    filled, seen = Filled(), []
    for _ in range(3):
        seen.append(await filled.fill(file))
        change()
    assert seen == [["a", "b"], ["b"], ["a", "b"]]


async def test_a_node_written_by_hand_needs_no_uid(changing) -> None:
    body = named("a")
    del body["metadata"]["uid"]
    file, _ = changing([body])
    assert await Filled().fill(file) == ["a"]


async def test_a_file_that_says_the_same_again_changes_nothing(changing) -> None:
    file, _ = changing([named("a")])
    filled = Filled()
    await filled.fill(file)
    changes = filled.fleet.changes
    await filled.fill(file)
    assert filled.fleet.changes == changes


async def test_of_a_file_only_the_nodes_of_the_shard_count(changing) -> None:
    file, _ = changing([named("a"), named("b", **{"tonnage.dev/shard": "east"})])
    assert await Filled().fill(file, Shard("east")) == ["b"]
    assert await Filled().fill(file) == ["a"]


# Definitions


async def test_every_missing_definition_is_named_with_what_to_run() -> None:
    class Bare(FakeApi):
        async def probe(self, selection: Selection) -> None:
            raise KindMissingError(f"list {selection.kind.kind}: 404")

    kinds = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS)
    with pytest.raises(MissingKindsError) as caught:
        await find_kinds(Bare(), map(Selection, kinds))
    assert "inferencedeployments.tonnage.dev (InferenceDeployment)" in str(caught.value)
    assert "acceleratorpools.tonnage.dev (AcceleratorPool)" in str(caught.value)
    assert "tonnage crds | kubectl apply" in str(caught.value)
    await find_kinds(FakeApi(), map(Selection, kinds))
