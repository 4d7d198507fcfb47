"""The scope of the operator, and the fleet file."""

from collections.abc import Callable

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.fleets.objects import node
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.load import load_catalog
from tonnage.controller.queueing.priority import Priority
from tonnage.controller.settings import Settings
from tonnage.fleet.fleet import Fleet
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
)
from tonnage.kube.protocol import (
    Kind,
    KindMissingError,
    Object,
    ObjectParts,
    Selection,
    TransientError,
    select_labels,
)
from tonnage.manager.fleet_file import FleetFile, FleetFileError
from tonnage.manager.scope import build_scope, select_labels_of
from tonnage.manager.start_up import MissingKindsError, check_kinds
from tonnage.manager.triggers import Triggers
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key


def nothing(path: str) -> list[Object]:
    raise FleetFileError(f"{path} is not there")


EVERYTHING = (
    *(INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS, DEPLOYMENTS, SERVICES, PODS, NODES),
    POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    NAMESPACES,
    LEADER_WORKER_SETS,
    JOBS,
)
DRA = (DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, RESOURCE_CLAIM_TEMPLATES)
SCOPES = {
    "the whole cluster": (
        Settings(),
        {kind: [None] for kind in (*EVERYTHING, *DRA)},
        (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS),
    ),
    "with ComputeDomains": (
        Settings(compute_domains=True),
        {kind: [None] for kind in (*EVERYTHING, COMPUTE_DOMAINS, *DRA)},
        (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS),
    ),
    "namespaces": (
        Settings(namespaces=("chat", "search")),
        {
            **{kind: ["chat", "search"] if kind.namespaced else [None] for kind in EVERYTHING},
            **{kind: [None] for kind in DRA[:3]},  # claims of every namespace hold GPUs
            RESOURCE_CLAIM_TEMPLATES: ["chat", "search"],
        },
        (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS),
    ),
    "Roles only": (
        Settings(namespaces=("chat", "search"), fleet_file="fleet.yaml"),
        {kind: ["chat", "search"] for kind in EVERYTHING if kind.namespaced},
        (INFERENCE_DEPLOYMENTS,),
    ),
}


@pytest.mark.parametrize(("settings", "want", "by_kopf"), SCOPES.values(), ids=SCOPES)
def test_a_scope_selects_kinds_and_namespaces(
    settings: Settings, want: dict[Kind, list[str | None]], by_kopf: tuple[Kind, ...]
) -> None:
    scope = build_scope(settings, nothing)
    selected: dict[Kind, list[str | None]] = {}
    for selection in scope.selections():
        selected.setdefault(selection.kind, []).append(selection.namespace)
    assert selected == want
    assert scope.watched_by_kopf == by_kopf
    assert {selection.kind for selection in scope.selections(by_kopf)} == set(by_kopf)


def test_selections_have_labels_and_fields() -> None:
    scope = build_scope(Settings(), nothing)
    selections = {selection.kind: selection for selection in scope.selections()}
    for kind in (DEPLOYMENTS, LEADER_WORKER_SETS, SERVICES):
        assert select_labels(selections[kind].labels or {}) == (
            "app.kubernetes.io/managed-by=tonnage,!tonnage.dev/shard"
        )
    assert not selections[PODS].labels, "pods of every shard take GPUs"
    assert selections[PODS].fields == "status.phase!=Succeeded,status.phase!=Failed"
    assert selections[NODES] == Selection(NODES, labels={"tonnage.dev/shard": None})


def test_every_selected_kind_has_a_store() -> None:
    stores = Stores()
    for selection in build_scope(Settings(compute_domains=True), nothing).selections():
        assert len(stores.store_for(selection.kind)) == 0


# The fleet file


class Files:
    """Returns the contents of the file one after the other; raises those that are errors."""

    def __init__(self, *contents: list[Object] | FleetFileError) -> None:
        self.contents = list(contents)

    def read(self, _: str) -> list[Object]:
        content = self.contents.pop(0)
        if isinstance(content, FleetFileError):
            raise content
        return content


NODE = node() | {"kind": "Node"}
NODE["metadata"]["resourceVersion"] = ""
BROKEN = FleetFileError("fleet.yaml, line 3: is not YAML")


@pytest.fixture
def make_file(tmp_path) -> Callable[..., tuple[FleetFile, Callable[[], None]]]:
    """Makes a fleet file with these contents, and a function that changes the file."""

    def make(*contents: list[Object] | FleetFileError) -> tuple[FleetFile, Callable[[], None]]:
        path = tmp_path / "fleet.yaml"
        path.write_text("0")

        def change() -> None:
            path.write_text(path.read_text() + "0")

        return FleetFile(str(path), Files(*contents).read), change

    return make


async def test_a_file_is_read_again_only_when_it_changed(make_file) -> None:
    file, change = make_file([NODE], [NODE, NODE])
    assert await file.refresh()
    assert not await file.refresh()
    change()
    assert await file.refresh()
    assert len(file.objects(NODES)) == 2


async def test_an_invalid_file_keeps_the_last_valid_one_and_is_logged_once(
    make_file, caplog
) -> None:
    file, change = make_file([NODE], BROKEN, BROKEN, [NODE])
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
        "fleet file is invalid, keeping the last valid one: fleet.yaml, line 3: is not YAML"
    ]


async def test_without_a_valid_file_objects_raises(make_file) -> None:
    file, _ = make_file(BROKEN)
    await file.refresh()
    with pytest.raises(TransientError, match="line 3: is not YAML"):
        file.objects(NODES)


async def test_a_file_created_later_is_read(tmp_path) -> None:
    path = tmp_path / "fleet.yaml"
    file = FleetFile(str(path), Files(BROKEN, BROKEN, [NODE]).read)
    assert not await file.refresh()
    assert not await file.refresh()
    path.write_text("0")
    assert await file.refresh()


class FilledStores:
    """Stores that are filled from a fleet file, and the fleet behind them."""

    def __init__(self) -> None:
        self.fleet = FleetState(Fleet(load_catalog()))
        self.stores = Stores(Triggers(NoQueue(), self.fleet).on_change)

    async def fill(self, file: FleetFile, shard: Shard = UNNAMED_SHARD) -> list[str]:
        """Fill the stores; return the names of the fleet's nodes."""
        await file.refresh()
        for kind in (NODES, ACCELERATOR_POOLS):
            file.fill(self.stores.store_for(kind), kind, select_labels_of(kind, shard))
        return [node.name for node in self.fleet.view().snapshot().nodes]


class NoQueue:
    """Ignores all keys."""

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None: ...

    def add_after(self, key: Key, seconds: float) -> None: ...


def labelled_node(name: str, gpus: int = 8, **labels: str) -> Object:
    body = node(name, uid=name, gpus=gpus) | {"kind": "Node"}
    metadata = {**body["metadata"], "labels": labels, "resourceVersion": "7"}
    return body | {"metadata": metadata}


async def test_an_edited_node_with_the_same_version_is_applied(make_file) -> None:
    file, change = make_file([labelled_node("a", gpus=8)], [labelled_node("a", gpus=4)])
    filled = FilledStores()
    for gpus in (8, 4):
        assert await filled.fill(file) == ["a"]
        (edited,) = filled.fleet.view().snapshot().nodes
        assert edited.capacity == {"amd.com/gpu": gpus}
        change()


async def test_a_node_is_removed_from_the_file_and_added_again(make_file) -> None:
    file, change = make_file(
        [labelled_node("a"), labelled_node("b")],
        [labelled_node("b")],
        [labelled_node("a"), labelled_node("b")],
    )
    filled, seen = FilledStores(), []
    for _ in range(3):
        seen.append(await filled.fill(file))
        change()
    assert seen == [["a", "b"], ["b"], ["a", "b"]]


async def test_a_node_written_by_hand_needs_no_uid(make_file) -> None:
    body = labelled_node("a")
    del body["metadata"]["uid"]
    file, _ = make_file([body])
    assert await FilledStores().fill(file) == ["a"]


async def test_filling_from_the_same_file_changes_nothing(make_file) -> None:
    file, _ = make_file([labelled_node("a")])
    filled = FilledStores()
    await filled.fill(file)
    changes = filled.fleet.changes
    await filled.fill(file)
    assert filled.fleet.changes == changes


async def test_only_the_files_nodes_of_the_shard_are_used(make_file) -> None:
    file, _ = make_file([labelled_node("a"), labelled_node("b", **{"tonnage.dev/shard": "east"})])
    assert await FilledStores().fill(file, Shard("east")) == ["b"]
    assert await FilledStores().fill(file) == ["a"]


# CRDs


async def test_every_missing_crd_is_named_with_the_command_to_run() -> None:
    class Bare(FakeApi):
        async def list_first(
            self, selection: Selection, parts: ObjectParts, limit: int
        ) -> list[Object]:
            raise KindMissingError(f"list {selection.kind.kind}: 404")

    kinds = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS)
    with pytest.raises(MissingKindsError) as caught:
        await check_kinds(Bare(), map(Selection, kinds))
    assert "inferencedeployments.tonnage.dev (InferenceDeployment)" in str(caught.value)
    assert "acceleratorpools.tonnage.dev (AcceleratorPool)" in str(caught.value)
    assert "tonnage crds | kubectl apply" in str(caught.value)
    await check_kinds(FakeApi(), map(Selection, kinds))
