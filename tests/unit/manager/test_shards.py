"""Shards: who is of which, what each operator is shown, and what it leaves alone."""

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.fleets.gpu_nodes import amd_node, snapshot_of
from tests.support.in_memory.cluster import H100, WORLD, Cluster, spec_of
from tests.support.in_memory.controllers import ready, without_image
from tonnage.api.names import LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY
from tonnage.api.shard import UNNAMED_SHARD, Shard, shard_of
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import Pool
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object, ObjectParts, select_labels
from tonnage.manager.application import build_settings
from tonnage.manager.components import lease_name
from tonnage.manager.scope import OPTIONAL, Scope
from tonnage.reconcile.integrations.accelerator_pools import PoolReporter
from tonnage.workloads.pod.scheduling import render_affinity

CHILDREN = (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    SERVICES,
    RESOURCE_CLAIM_TEMPLATES,
    JOBS,
    COMPUTE_DOMAINS,
)
SHARDED = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS, NODES, *CHILDREN)
EAST, WEST = Shard("east"), Shard("west")
HOUR = 3600


def body(name: str, shard: object, namespace: str | None = "chat") -> Object:
    labels = {LABEL_MANAGED_BY: MANAGED_BY, **({LABEL_SHARD: shard} if shard else {})}
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, "labels": labels, **where}}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (body("x", "east"), EAST),
        (body("x", None), UNNAMED_SHARD),
        ({"metadata": {}}, UNNAMED_SHARD),
        ({"metadata": {"labels": None}}, UNNAMED_SHARD),
        ({"metadata": {"labels": ["hostile"]}}, UNNAMED_SHARD),
        ({"metadata": "hostile"}, UNNAMED_SHARD),
        ({}, UNNAMED_SHARD),
        (body("x", 7), UNNAMED_SHARD),
    ],
)
def test_every_object_belongs_to_exactly_one_shard(obj: Object, want: Shard) -> None:
    assert shard_of(obj) == want
    assert [shard for shard in (EAST, WEST, UNNAMED_SHARD) if shard.has(obj)] == [want]


def test_a_selector_is_written_as_the_server_takes_it() -> None:
    assert select_labels(EAST.labels) == "tonnage.dev/shard=east"
    assert select_labels(UNNAMED_SHARD.labels) == "!tonnage.dev/shard"
    assert select_labels({"a": "b", **WEST.labels}) == "a=b,tonnage.dev/shard=west"


async def listed(api: FakeApi, kind: Kind, shard: Shard) -> list[str]:
    """Names of the objects that the operator of a shard lists."""
    names: list[str] = []
    for selection in Scope(shard=shard, compute_domains=True).selections([kind]):
        await api.list_pages(
            selection, ObjectParts.METADATA, lambda body: names.append(body["metadata"]["name"])
        )
    return names


def of_every_shard(kind: Kind) -> FakeApi:
    api = FakeApi()
    for shard in ("east", "west", None):
        api.put(kind, body(f"of-{shard}", shard, "chat" if kind.namespaced else None))
    return api


@pytest.mark.parametrize("kind", SHARDED, ids=lambda kind: kind.plural)
async def test_every_object_is_selected_by_one_operator(kind: Kind) -> None:
    api = of_every_shard(kind)
    for shard in (EAST, WEST, UNNAMED_SHARD):
        assert await listed(api, kind, shard) == [f"of-{shard.name}"]


async def test_pods_of_every_shard_are_selected_by_all_operators() -> None:
    api = of_every_shard(PODS)
    for shard in (EAST, WEST, UNNAMED_SHARD):
        assert len(await listed(api, PODS, shard)) == 3


def test_kopf_and_reflectors_select_alike() -> None:
    scope = Scope(shard=EAST, compute_domains=True)
    by_kopf = build_settings(EAST).watching.label_selectors
    selectors = {each.kind: select_labels(each.labels or {}) for each in scope.selections()}
    for kind in scope.watched_by_kopf:
        assert by_kopf[kind.group, kind.version, kind.plural] == selectors[kind]
    mine, ours = "tonnage.dev/shard=east", "app.kubernetes.io/managed-by=tonnage"
    for kind in SHARDED:
        wanted = f"{ours},{mine}" if kind in CHILDREN else mine
        assert selectors.pop(kind) == wanted
    everywhere = (kind for kind in (PODS, *OPTIONAL) if kind not in CHILDREN)
    assert selectors == dict.fromkeys(everywhere, "")


def test_each_shard_has_a_lease() -> None:
    assert lease_name(UNNAMED_SHARD) == "tonnage"
    assert lease_name(EAST) == "tonnage-east"


# Pools


def pool_of(shard: Shard) -> Pool:
    (pool,) = build_pools(snapshot_of([amd_node("a")], shard=shard), WORLD.catalog)
    return pool


def expressions(pool: Pool) -> list[Object]:
    node_affinity = render_affinity(pool, WORLD.catalog)["nodeAffinity"]
    (term,) = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [
        expression for expression in term["matchExpressions"] if expression["key"] == LABEL_SHARD
    ]


def test_pods_run_only_on_the_nodes_of_their_shard() -> None:
    assert expressions(pool_of(EAST)) == [
        {"key": LABEL_SHARD, "operator": "In", "values": ["east"]}
    ]
    assert expressions(pool_of(UNNAMED_SHARD)) == [{"key": LABEL_SHARD, "operator": "DoesNotExist"}]


def test_a_discovered_pool_is_named_after_its_shard() -> None:
    assert pool_of(UNNAMED_SHARD).name == "amd-mi300x"
    assert pool_of(EAST).name == "east-amd-mi300x"
    assert len(pool_of(Shard("e" * 63)).name) <= 63


# The loop


class East(Cluster):
    """A cluster with the operator of the east in it."""

    shard = EAST


class West(Cluster):
    """The same with that of the west."""

    shard = WEST


def side_by_side() -> tuple[Cluster, Cluster]:
    """Both operators on one API server, each with a node of the same cards."""
    east, west = East(), West()
    for shard in (EAST, WEST):
        east.join(**H100, labels=shard.own_labels | {"zone": "any"})
        (node,) = (one for one in east.api.objects(NODES) if one["metadata"]["name"] == "h100-0")
        node["metadata"]["name"] = f"{shard.name}-0"
        east.api.put(NODES, node)
        east.api.remove(NODES, None, "h100-0")
    west.api = east.api
    for cluster in (east, west):
        cluster.start_operator()
    return east, west


def declare(cluster: Cluster, shard: Shard, **spec: object) -> None:
    cluster.apply("llama", spec_of(**spec))
    label(cluster, shard)


def label(cluster: Cluster, shard: Shard) -> None:
    model = cluster.inference_deployment()
    model["metadata"]["labels"] = shard.own_labels
    cluster.api.put(INFERENCE_DEPLOYMENTS, model)


async def test_objects_of_another_shard_are_left_alone() -> None:
    east, west = side_by_side()
    declare(east, EAST)
    await east.settle()
    assert east.conditions()["Ready"] == ("True", "ReplicasReady")
    assert [pod["spec"]["nodeName"] for pod in east.pods()] == ["east-0"]
    before = east.api.write_count
    await west.reconcile("llama")
    assert east.api.write_count == before


async def test_gpus_of_another_shard_are_not_available() -> None:
    east, _ = side_by_side()
    declare(east, EAST, replicas=9)
    await east.settle()
    assert east.conditions()["Ready"][1] == "InsufficientGPUs"
    assert {pod["spec"].get("nodeName") for pod in east.pods()} <= {"east-0", None}


async def test_an_object_that_changes_its_shard_keeps_its_children() -> None:
    east, west = side_by_side()
    declare(east, EAST)
    await east.settle()
    (before,) = east.api.objects(DEPLOYMENTS)
    label(east, WEST)
    writes = east.api.write_count
    await east.reconcile("llama")
    assert east.api.write_count == writes
    assert east.fleet.known_keys() == set(), "nothing is reserved for it any more"
    await west.settle()
    assert west.conditions()["Ready"] == ("True", "ReplicasReady")
    (after,) = west.api.objects(DEPLOYMENTS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"][LABEL_SHARD] == "west"
    assert [pod["spec"]["nodeName"] for pod in west.pods()] == ["west-0"]
    assert [one["metadata"]["labels"][LABEL_SHARD] for one in west.api.objects(SERVICES)] == [
        "west"
    ]


async def test_an_object_that_returns_to_its_shard_is_reconciled_there_again() -> None:
    east, west = side_by_side()
    declare(east, EAST)
    await east.settle()
    for shard, cluster in ((WEST, west), (EAST, east)):
        label(east, shard)
        await east.settle()
        await west.settle()
        assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
        assert [pod["spec"]["nodeName"] for pod in east.pods()] == [f"{shard.name}-0"]
    assert west.fleet.known_keys() == set()


async def test_a_plan_that_fails_in_another_shard_leaves_no_pod_in_the_former_one() -> None:
    east, west = side_by_side()
    declare(east, EAST, replicas=2)
    await east.settle()
    for cluster in (east, west):
        cluster.behaviours["llama"] = lambda pod: (
            ready(pod) if pod["spec"]["nodeName"] == "east-0" else without_image(pod)
        )
    west.clock.advance(HOUR)
    label(east, WEST)
    await west.settle()
    await west.wait(24 * HOUR)
    assert {pod["metadata"]["labels"].get(LABEL_SHARD) for pod in west.pods()} == {"east", "west"}
    assert west.conditions()["Ready"] == ("False", "ImagePullFailed")
    west.behaviours.clear()
    await west.settle()
    assert west.conditions()["Ready"] == ("True", "ReplicasReady")
    assert [pod["spec"]["nodeName"] for pod in west.pods()] == ["west-0", "west-0"]


async def test_a_late_write_of_the_former_shard_is_reverted() -> None:
    east, west = side_by_side()
    declare(east, EAST)
    await east.settle()
    (former,) = east.api.objects(DEPLOYMENTS)
    label(east, WEST)
    await west.settle()
    west.api.put(DEPLOYMENTS, former)
    await west.settle()
    (after,) = west.api.objects(DEPLOYMENTS)
    assert after["metadata"]["labels"][LABEL_SHARD] == "west"
    assert [pod["spec"]["nodeName"] for pod in west.pods()] == ["west-0"]


async def test_pools_of_two_shards_coexist_under_different_names() -> None:
    east, west = side_by_side()
    taken = body("west-nvidia-h100-sxm-80gb", "north", None) | {
        "spec": {"nodeSelector": {"a": "b"}}
    }
    east.api.put(ACCELERATOR_POOLS, taken)
    for cluster in (east, west):
        cluster.watch()
        reporter = PoolReporter(
            cluster.api, cluster.fleet.view, WORLD.catalog, cluster.clock.now, WORLD.settings
        )
        await reporter.report()
    pools = {one["metadata"]["name"]: one for one in east.api.objects(ACCELERATOR_POOLS)}
    assert set(pools) == {"east-nvidia-h100-sxm-80gb", "west-nvidia-h100-sxm-80gb"}
    assert pools["east-nvidia-h100-sxm-80gb"]["status"]["gpus"]["total"] == 8
    assert pools["east-nvidia-h100-sxm-80gb"]["metadata"]["labels"][LABEL_SHARD] == "east"
    assert pools["west-nvidia-h100-sxm-80gb"]["spec"] == taken["spec"]
