"""Replicas whose pods are refused, or fit on no node for another reason than GPUs, hold no GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import loading, ready
from tests.support.production.admission import service_account
from tests.support.production.claims import volume_claim
from tests.support.production.limit_ranges import limit_range
from tests.support.production.pod_security import enforced_namespace
from tests.support.production.quotas import resource_quota
from tests.support.production.webhooks import adding_node_selector, denying
from tonnage import delays
from tonnage.kube.kinds import NODES, PODS, SERVICES
from tonnage.kube.protocol import Object

GREEDY = "team-a/greedy"
WITHIN = 180.0
"""Seconds within which GPUs are free for others."""

Act = Callable[[Cluster], object]


@dataclass(frozen=True)
class Obstacle:
    """Why no pod of an object comes. `spec` is the object's, `cause` happens before, `remove` ends
    the cause. `soon`: the API server refuses the pods, so that nothing has to be waited for."""

    cause: Act
    remove: Act
    spec: Object
    soon: bool = True


def administered(body: Object) -> tuple[Act, Act]:
    return lambda cluster: cluster.administer(body), lambda cluster: cluster.withdraw(body)


def template(**spec: Any) -> Object:
    return spec_of(replicas=8, template={"spec": spec})


def requests(**quantities: str) -> Object:
    named = {name.replace("_", "-"): quantity for name, quantity in quantities.items()}
    return template(resources={"requests": named})


def nothing(cluster: Cluster) -> None:
    """The spec is cause enough."""


def larger_nodes(cluster: Cluster) -> None:
    """The nodes are replaced by larger ones of the same name."""
    for node in cluster.api.objects(NODES):
        node["status"]["allocatable"] |= {"cpu": "4000", "ephemeral-storage": "90Ti"}
        cluster.api.put(NODES, node)


def label_nodes(cluster: Cluster) -> None:
    for node in cluster.api.objects(NODES):
        node["metadata"]["labels"]["team"] = "chat"
        cluster.api.put(NODES, node)


def install_scheduler(cluster: Cluster) -> None:
    """The scheduler that the pods name takes them now."""
    for pod in cluster.pods(GREEDY):
        pod["spec"]["schedulerName"] = "default-scheduler"
        cluster.api.put(PODS, pod)


PLAIN = spec_of(replicas=8)
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
OBSTACLES = {
    "a quota of GPUs": Obstacle(
        *administered(resource_quota({"requests.amd.com/gpu": 0}, namespace="team-a")), PLAIN
    ),
    "a limit range": Obstacle(*administered(limit_range("team-a", max={"memory": "8Gi"})), PLAIN),
    "Pod Security": Obstacle(*administered(enforced_namespace("restricted", "team-a")), PLAIN),
    "a missing account": Obstacle(
        nothing,
        lambda cluster: cluster.administer(service_account("models", "team-a")),
        template(serviceAccountName="models"),
    ),
    "a webhook": Obstacle(
        lambda cluster: cluster.webhooks.append(denying("image is not signed", namespace="team-a")),
        lambda cluster: cluster.webhooks.clear(),
        PLAIN,
    ),
    "requests of CPU that no node can hold": Obstacle(
        nothing, larger_nodes, requests(cpu="500"), soon=False
    ),
    "requests of disk that no node can hold": Obstacle(
        nothing, larger_nodes, requests(ephemeral_storage="10Ti"), soon=False
    ),
    "a claim without a volume": Obstacle(
        lambda cluster: cluster.administer(volume_claim("data", bound=False, namespace="team-a")),
        lambda cluster: cluster.administer(volume_claim("data", bound=True, namespace="team-a")),
        template(volumes=[CLAIM]),
        soon=False,
    ),
    "a claim that does not exist": Obstacle(
        nothing,
        lambda cluster: cluster.administer(volume_claim("data", bound=True, namespace="team-a")),
        template(volumes=[CLAIM]),
        soon=False,
    ),
    "a scheduler that does not exist": Obstacle(
        nothing,
        install_scheduler,
        spec_of(replicas=8, podTemplate={"spec": {"schedulerName": "absent"}}),
        soon=False,
    ),
    "a node selector that a webhook adds": Obstacle(
        lambda cluster: cluster.webhooks.append(
            adding_node_selector("team", "chat", namespace="team-a")
        ),
        label_nodes,
        PLAIN,
        soon=False,
    ),
}


async def with_greedy(obstacle: Obstacle) -> Cluster:
    """One node of eight GPUs, of which an object asks for all and gets no pod to run."""
    cluster = Cluster(MI300X)
    obstacle.cause(cluster)
    cluster.apply(GREEDY, obstacle.spec)
    await cluster.settle()
    assert not any(pod["spec"].get("nodeName") for pod in cluster.pods(GREEDY))
    return cluster


def reserved(cluster: Cluster, owner: str) -> int:
    namespace, _, name = owner.rpartition("/")
    reservations = cluster.fleet.view().reserved((namespace or "chat", name))
    return sum(each.footprint.gpus * each.replicas for each in reservations)


@pytest.mark.parametrize("case", OBSTACLES)
async def test_others_get_the_gpus_of_replicas_that_cannot_come(case: str) -> None:
    obstacle = OBSTACLES[case]
    cluster = await with_greedy(obstacle)
    cluster.apply("llama", spec_of(replicas=8))
    await cluster.settle()
    if not obstacle.soon:
        await cluster.wait(WITHIN)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady"), cluster.message("Placed")
    assert reserved(cluster, GREEDY) == 0


@pytest.mark.parametrize("case", OBSTACLES)
async def test_the_replicas_come_by_themselves_when_the_cause_is_gone(case: str) -> None:
    obstacle = OBSTACLES[case]
    cluster = await with_greedy(obstacle)
    await cluster.wait(WITHIN)
    assert reserved(cluster, GREEDY) == 0
    obstacle.remove(cluster)
    await cluster.settle()
    assert cluster.conditions(GREEDY)["Ready"] == ("True", "ReplicasReady")
    assert reserved(cluster, GREEDY) == 8


@pytest.mark.parametrize("case", OBSTACLES)
async def test_replicas_whose_gpus_others_took_wait_for_them(case: str) -> None:
    obstacle = OBSTACLES[case]
    cluster = await with_greedy(obstacle)
    cluster.apply("llama", spec_of(replicas=8))
    await cluster.wait(WITHIN)
    obstacle.remove(cluster)
    await cluster.settle()
    await cluster.wait(WITHIN)
    assert cluster.conditions(GREEDY)["Placed"] == ("False", "InsufficientGPUs")
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    cluster.delete("llama")
    await cluster.settle()
    assert cluster.conditions(GREEDY)["Ready"] == ("True", "ReplicasReady")


@pytest.mark.parametrize("case", OBSTACLES)
async def test_a_new_leader_soon_reserves_nothing_for_them_either(case: str) -> None:
    cluster = await with_greedy(OBSTACLES[case])
    await cluster.wait(WITHIN)
    cluster.start_operator()
    await cluster.settle()
    assert reserved(cluster, GREEDY) == 0


@pytest.mark.parametrize("case", OBSTACLES)
async def test_nothing_is_written_while_nothing_changes(case: str) -> None:
    cluster = await with_greedy(OBSTACLES[case])
    cluster.apply("llama", spec_of(replicas=8))
    await cluster.wait(WITHIN)
    writes = cluster.api.write_count
    for _ in range(3):
        await cluster.wait(delays.RESYNC)
        await cluster.resync()
    effective = [call for call in cluster.api.effective_writes() if call.verb != "apply_status"]
    assert len(effective) <= 6
    assert cluster.api.write_count - writes <= 3  # statuses that name a time or a reason


async def test_replicas_that_came_before_the_quota_was_used_up_keep_their_gpus() -> None:
    cluster = Cluster(MI300X)
    cluster.administer(resource_quota({"requests.amd.com/gpu": 3}, namespace="team-a"))
    cluster.apply(GREEDY, PLAIN)
    await cluster.settle()
    cluster.apply("llama", spec_of(replicas=8))
    await cluster.settle()
    assert reserved(cluster, GREEDY) == 3
    assert reserved(cluster, "llama") == 5
    assert len(cluster.pods()) == 5


async def test_a_new_template_gets_its_gpus_reserved_again() -> None:
    cluster = await with_greedy(OBSTACLES["requests of CPU that no node can hold"])
    await cluster.wait(WITHIN)
    cluster.apply(GREEDY, requests(cpu="2"))
    await cluster.reconcile(GREEDY)
    assert reserved(cluster, GREEDY) == 8


# Waiting for GPUs is no obstacle


async def test_replicas_that_wait_for_gpus_of_others_keep_their_reservation() -> None:
    cluster = Cluster(MI300X)
    cluster.apply(GREEDY, PLAIN)
    await cluster.reconcile(GREEDY)
    cluster.occupy("mi300x-0", 8)  # somebody else is quicker
    await cluster.settle()
    await cluster.wait(WITHIN)
    cluster.free("mi300x-0")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions(GREEDY)["Ready"] == ("True", "ReplicasReady")
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")


async def test_gpus_on_nodes_without_cpu_are_free_for_replicas_that_need_less() -> None:
    """Some nodes lack GPUs, and others have GPUs and lack the CPU for these replicas."""
    cluster = Cluster({**MI300X, "count": 2, "gpusPerNode": 2})
    cluster.use("mi300x-0", **{"amd.com/gpu": 2})
    cluster.use("mi300x-1", cpu=10)  # of 23
    cluster.apply(GREEDY, spec_of(replicas=2, template=requests(cpu="20")["template"]))
    await cluster.settle()
    cluster.apply("llama", spec_of())
    await cluster.wait(WITHIN)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady"), cluster.message("Ready")


async def test_gpus_of_a_node_that_is_shut_for_a_while_stay_reserved() -> None:
    cluster = Cluster(MI300X)
    cluster.apply(GREEDY, PLAIN)
    await cluster.reconcile(GREEDY)
    cluster.cordon("mi300x")
    await cluster.settle()
    await cluster.wait(WITHIN)
    cluster.apply("llama", spec_of())
    cluster.cordon("mi300x", cordoned=False)
    await cluster.settle(["llama", GREEDY])
    assert cluster.conditions(GREEDY)["Ready"] == ("True", "ReplicasReady")


# A Service that is refused


async def test_replicas_that_no_service_leads_to_hold_no_gpus() -> None:
    cluster, quota = Cluster(MI300X), resource_quota({"services": 0}, namespace="team-a")
    cluster.administer(quota)
    cluster.behaviours["greedy"] = loading
    cluster.apply(GREEDY, PLAIN)
    await cluster.settle()
    await cluster.wait(delays.REQUEUE_FORBIDDEN)
    assert cluster.conditions(GREEDY)["Accepted"] == ("False", "ChildRefused")
    assert "exceeded quota: quota, requested: services=1" in cluster.message("Accepted", GREEDY)
    assert cluster.pods(GREEDY) == []
    cluster.apply("llama", spec_of(replicas=8))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    cluster.delete("llama")
    cluster.withdraw(quota)
    cluster.behaviours["greedy"] = ready
    await cluster.wait(delays.REQUEUE_FORBIDDEN)
    assert cluster.conditions(GREEDY)["Ready"] == ("True", "ReplicasReady")


async def test_replicas_that_serve_stay_where_a_further_service_is_refused() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    before = {pod["metadata"]["name"] for pod in cluster.pods()}
    cluster.administer(resource_quota({"services": 0}))
    service = cluster.api.object(SERVICES, "chat", "llama")
    cluster.api.remove(SERVICES, "chat", "llama")
    await cluster.settle()
    await cluster.wait(delays.REQUEUE_FORBIDDEN)
    assert {pod["metadata"]["name"] for pod in cluster.pods()} == before
    assert service["metadata"]["name"] == "llama"


# Pods of a deleted node


async def test_pods_of_a_deleted_node_do_not_serve_whatever_they_say() -> None:
    cluster = Cluster({**MI300X, "count": 2})
    cluster.collects_orphans = False
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()
    node = cluster.pods()[0]["spec"]["nodeName"]
    cluster.leave(node)
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "NodeLost")
    assert f"its node {node} does not exist" in cluster.message("Ready")
    assert cluster.conditions()["Available"][0] == "False"


async def test_pods_of_a_deleted_node_reserve_no_other_gpus_for_ever() -> None:
    cluster = Cluster({**MI300X, "count": 2})
    cluster.collects_orphans = False
    cluster.apply(GREEDY, PLAIN)
    await cluster.settle()
    node = cluster.pods(GREEDY)[0]["spec"]["nodeName"]
    cluster.leave(node)
    cluster.apply("llama", spec_of(replicas=8))
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    await cluster.wait(WITHIN)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_a_node_that_the_operator_does_not_watch_loses_no_pod() -> None:
    """A node of another shard is in no store, and exists."""
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    (node,) = cluster.api.objects(NODES)
    node["metadata"]["labels"]["tonnage.dev/shard"] = "east"
    cluster.api.put(NODES, node)
    await cluster.settle()
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")


# Who waits reads who holds what


async def test_who_waits_reads_who_of_its_namespace_holds_the_gpus() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("greedy", spec_of(replicas=8))
    await cluster.settle()
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert "0 free of 8" in cluster.message("Placed")
    assert cluster.message("Placed").endswith("; 8 are reserved by chat/greedy")


async def test_who_waits_reads_which_other_namespace_holds_them_and_no_name_from_there() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("team-a/secret-model", spec_of(replicas=5))
    cluster.apply("team-a/other-model", spec_of(replicas=3))
    await cluster.settle()
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.message("Placed").endswith("; 8 are reserved by namespace team-a")
    assert "secret-model" not in str(cluster.status())


async def test_replicas_that_wait_for_more_of_their_pool_read_it_too() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("team-a/model", spec_of(replicas=5))
    await cluster.settle()
    cluster.apply("llama", spec_of(replicas=4))
    await cluster.settle()
    assert "capacity for 3 of 4 replicas" in cluster.message("Placed")
    assert "; 5 are reserved by namespace team-a" in cluster.message("Placed")
