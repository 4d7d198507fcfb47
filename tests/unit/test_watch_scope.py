"""How much of the cluster is looked at, and that the loop cannot tell."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.support.fake_api import FakeApi
from tests.support.fleet_objects import node
from tonnage.catalog.load import load_catalog
from tonnage.kube.forwarding import NamespacedKubeApi
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import KindMissingError, Listing, Object, Parts, TransientError
from tonnage.kube.watching import Selection
from tonnage.reconcile.looks import Looks
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.settings import Settings
from tonnage.watch.fleet_file import FleetFile, FleetFileError, FleetFileKubeApi
from tonnage.watch.lists import relist_fleet
from tonnage.watch.scope import WATCHED, scope_of
from tonnage.watch.start_up import MissingKindsError, find_kinds


def infd(namespace: str) -> Object:
    return {"metadata": {"name": "llama", "namespace": namespace}}


def in_three_namespaces() -> FakeApi:
    api = FakeApi()
    for namespace in ("chat", "search", "other"):
        api.put(INFERENCE_DEPLOYMENTS, infd(namespace))
    api.put(NODES, node())
    return api


def nothing(path: str) -> list[Object]:
    raise FleetFileError(f"{path} is not there")


async def test_all_namespaces_are_those_that_are_served() -> None:
    behind = in_three_namespaces()
    api = NamespacedKubeApi(behind, ("chat", "search"))
    found = await api.list(INFERENCE_DEPLOYMENTS)
    assert [each["metadata"]["namespace"] for each in found] == ["chat", "search"]
    assert [call.namespace for call in behind.calls] == ["chat", "search"]


async def test_what_is_of_the_cluster_or_of_one_namespace_is_asked_for_as_ever() -> None:
    behind = in_three_namespaces()
    api = NamespacedKubeApi(behind, ("chat",))
    assert len(await api.list(NODES)) == 1
    assert len(await api.list(INFERENCE_DEPLOYMENTS, "search")) == 1
    assert [call.namespace for call in behind.calls] == [None, "search"]


async def test_what_is_handed_over_and_probed_is_so_in_each_namespace() -> None:
    behind = in_three_namespaces()
    api, found = NamespacedKubeApi(behind, ("chat", "search")), []
    await api.each(Listing(INFERENCE_DEPLOYMENTS, Parts.WHOLE), found.append)
    await api.probe(INFERENCE_DEPLOYMENTS)
    await api.probe(NODES)
    assert [one["metadata"]["namespace"] for one in found] == ["chat", "search"]
    assert [call.namespace for call in behind.calls] == ["chat", "search"] * 2 + [None]


SCOPES = {
    "the whole cluster": (Settings(), WATCHED, (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS)),
    "namespaces": (
        Settings(namespaces=("chat",)),
        WATCHED,
        (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS),
    ),
    "Roles only": (
        Settings(namespaces=("chat",), fleet_file="fleet.yaml"),
        (INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES, PODS),
        (INFERENCE_DEPLOYMENTS,),
    ),
}


@pytest.mark.parametrize(("settings", "watched", "defined"), SCOPES.values(), ids=SCOPES)
def test_a_scope_says_which_kinds_it_needs(
    settings: Settings, watched: object, defined: object
) -> None:
    scope = scope_of(settings, nothing)
    assert (scope.watched, scope.defined) == (watched, defined)


def test_followers_ask_for_what_counts_only() -> None:
    found = {each.kind: each for each in scope_of(Settings(), nothing).followed}
    ours = "app.kubernetes.io/managed-by=tonnage,!tonnage.dev/shard"
    assert (found[DEPLOYMENTS].labels, found[SERVICES].labels) == (ours, ours)
    assert found[PODS].fields == "status.phase!=Succeeded,status.phase!=Failed"
    assert found[NODES] == Selection(NODES, labels="!tonnage.dev/shard")


def test_followers_ask_in_each_namespace_where_there_are_some() -> None:
    settings = Settings(namespaces=("chat", "search"), fleet_file="fleet.yaml")
    found = [(each.kind, each.namespace) for each in scope_of(settings, nothing).followed]
    kinds = (DEPLOYMENTS, SERVICES, PODS)
    assert found == [(kind, namespace) for kind in kinds for namespace in ("chat", "search")]


def test_kopf_and_followers_share_the_kinds() -> None:
    scope = scope_of(Settings(), nothing)
    assert (*scope.watched_by_kopf, *(each.kind for each in scope.followed)) == scope.watched


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


async def test_an_edited_node_counts_though_its_version_was_left_as_it_was(changing) -> None:
    def printed(gpus: int) -> Object:
        found = node(gpus=gpus) | {"kind": "Node"}
        return found | {"metadata": found["metadata"] | {"resourceVersion": "7"}}

    file, change = changing([printed(8)], [printed(4)])
    api = FleetFileKubeApi(FakeApi(), file)
    fleet = FleetState(load_catalog(), lambda: None, lambda: None, lambda _: None)
    for gpus in (8, 4):
        await file.refresh()
        await relist_fleet(api, fleet, Looks(lambda: datetime.now(UTC)))
        (found,) = fleet.view().snapshot().nodes
        assert found.capacity == {"amd.com/gpu": gpus}
        change()


async def test_cluster_scoped_objects_stand_in_the_file_and_the_server_is_not_asked(
    changing,
) -> None:
    behind = in_three_namespaces()
    file, _ = changing([NODE | {"metadata": NODE["metadata"] | {"name": "of-the-file"}}])
    await file.refresh()
    api = FleetFileKubeApi(behind, file)
    assert [found["metadata"]["name"] for found in await api.list(NODES)] == ["of-the-file"]
    assert await api.list(ACCELERATOR_POOLS) == []
    await api.probe(NODES)
    assert behind.calls == []
    assert len(await api.list(INFERENCE_DEPLOYMENTS)) == 3


# Definitions


async def test_every_missing_definition_is_named_with_what_to_run() -> None:
    class Bare(FakeApi):
        async def list(self, kind, *rest, **more):
            raise KindMissingError(f"list {kind.kind}: 404")

    with pytest.raises(MissingKindsError) as caught:
        await find_kinds(Bare(), (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS))
    assert "inferencedeployments.tonnage.dev (InferenceDeployment)" in str(caught.value)
    assert "acceleratorpools.tonnage.dev (AcceleratorPool)" in str(caught.value)
    assert "tonnage crds | kubectl apply" in str(caught.value)
