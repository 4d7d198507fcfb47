"""ResourceQuotas decide which pools a new object can be placed on."""

import pytest

from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster, spec_of
from tests.support.in_memory.pricing import price
from tests.support.in_memory.serving import SETTLED
from tests.support.production.quotas import resource_quota
from tonnage.kube.protocol import Object

NVIDIA, AMD = "requests.nvidia.com/gpu", "requests.amd.com/gpu"


def cluster_with(*quotas: Object, **spec: object) -> Cluster:
    """An object that H100 is chosen for, but for the quotas."""
    cluster = Cluster(H100, MI300X)
    price(cluster, "h100", "1")
    for quota in quotas:
        cluster.administer(quota)
    cluster.apply("llama", spec_of(**spec))
    return cluster


async def test_a_pool_whose_gpus_no_quota_allows_is_rejected_at_once() -> None:
    cluster = cluster_with(resource_quota({NVIDIA: 0}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.candidate("h100")[:2] == ("Rejected", "QuotaExceeded")
    assert (
        "ResourceQuota quota leaves 0 of 0 nvidia.com/gpu, and a replica needs 1; raise the quota"
        in cluster.candidate("h100")[2]
    )


async def test_the_pods_of_others_use_the_quota_up() -> None:
    cluster = cluster_with(resource_quota({NVIDIA: 2}), replicas=2)
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    cluster.apply("gemma", spec_of())
    await cluster.settle()
    assert cluster.deployments() == ["gemma-mi300x", "llama-h100-sxm-80gb"]


async def test_without_an_allowed_pool_the_object_waits_for_the_quota_and_claims_nothing() -> None:
    quotas = resource_quota({NVIDIA: 0, AMD: 0})
    cluster = cluster_with(quotas, replicas=8)
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "QuotaExceeded")
    assert "the ResourceQuotas of the namespace leave no pool" in cluster.message("Placed")
    assert cluster.deployments() == []
    cluster.apply("team-a/other", spec_of(replicas=8, placement={"accelerators": ["h100"]}))
    await cluster.settle()
    assert cluster.conditions("team-a/other")["Placed"][0] == "True"
    cluster.delete("team-a/other")
    cluster.withdraw(quotas)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_a_pool_with_a_quota_for_all_replicas_comes_before_one_for_some() -> None:
    cluster = cluster_with(resource_quota({NVIDIA: 2}), replicas=4)
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    assert "capacity for 2 of 4 replicas now" in cluster.candidate("h100")[2]


async def test_replicas_in_excess_of_the_quota_are_reported_and_reserve_nothing() -> None:
    quota = resource_quota({NVIDIA: 2, AMD: 0})
    cluster = cluster_with(quota, replicas=4)
    await cluster.settle()
    assert len(cluster.pods()) == 2
    assert cluster.conditions()["Ready"] == ("False", "ChildRefused")
    cluster.apply("team-a/other", spec_of(replicas=6, placement={"accelerators": ["h100"]}))
    await cluster.settle()
    assert cluster.conditions("team-a/other")["Ready"] == ("True", "ReplicasReady")
    cluster.delete("team-a/other")
    cluster.withdraw(quota)
    await cluster.settle()
    assert len(cluster.pods()) == 4
    assert cluster.conditions() == SETTLED


async def test_replicas_that_run_stay_when_the_quota_is_lowered() -> None:
    cluster = cluster_with(replicas=4)
    await cluster.settle()
    pods = {pod["metadata"]["uid"] for pod in cluster.pods()}
    cluster.administer(resource_quota({NVIDIA: 0}))
    await cluster.settle()
    await cluster.resync()
    assert pods == {pod["metadata"]["uid"] for pod in cluster.pods()}
    assert cluster.conditions() == SETTLED
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]


@pytest.mark.parametrize("replicas", [0, 1])
async def test_an_object_without_replicas_needs_no_quota(replicas: int) -> None:
    cluster = cluster_with(resource_quota({NVIDIA: 0, AMD: 0}), replicas=replicas)
    await cluster.settle()
    assert (cluster.conditions()["Placed"][0] == "True") is (replicas == 0)


@pytest.mark.parametrize(
    ("hard", "message"),
    [
        ({"requests.cpu": 3}, "quota leaves 3 of 3 CPUs, and a replica needs 4"),
        ({"cpu": 3}, "quota leaves 3 of 3 CPUs, and a replica needs 4"),
        ({"requests.memory": "16Gi"}, "quota leaves 16 of 16 GiB of memory, and a replica needs"),
        ({"pods": 0}, "quota leaves 0 of 0 pods, and a replica needs 1"),
        (
            {"limits.memory": "640Gi"},
            "quota counts limits.memory, which container vllm does not set; set"
            " resources.limits.memory of it in spec.podTemplate",
        ),
    ],
)
async def test_quotas_of_other_resources_count(hard: dict[str, object], message: str) -> None:
    cluster = Cluster(H100)
    cluster.administer(resource_quota(hard))
    cluster.apply("llama", spec_of("llama-3.3-70b", workload={"maxModelLen": 4096}))
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "QuotaExceeded")
    assert message in cluster.message("Placed")
    assert cluster.deployments() == []


async def test_a_quota_of_memory_leaves_some_of_the_replicas() -> None:
    cluster = cluster_with(resource_quota({"requests.memory": "30Gi"}), replicas=4)
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("True", "PoolChosen")
    assert cluster.conditions()["Ready"][0] == "False"
    assert len(cluster.pods()) == 2


async def test_a_quota_for_another_priority_class_does_not_count() -> None:
    quota = resource_quota({NVIDIA: 0})
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["batch"]}
    quota["spec"]["scopeSelector"] = {"matchExpressions": [expression]}
    cluster = cluster_with(quota)
    await cluster.settle()
    assert cluster.candidate("h100")[0] == "Chosen"
    cluster.apply("job", spec_of(podTemplate={"spec": {"priorityClassName": "batch"}}))
    await cluster.settle()
    assert cluster.candidate("h100", "job")[1] == "QuotaExceeded"


async def test_a_parallelism_within_the_quota_is_chosen() -> None:
    cluster = Cluster(H100)
    cluster.administer(resource_quota({NVIDIA: 2}))
    placement = {"policy": "HighestThroughput"}
    cluster.apply("llama", spec_of("llama-3.3-70b", placement=placement))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert "fits with TP 2" in cluster.message("Placed")


async def test_of_several_quotas_the_tightest_counts() -> None:
    quota = resource_quota({NVIDIA: 8, AMD: 8, "requests.memory": "30Gi"})
    cluster = cluster_with(quota, replicas=2)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.apply("second", spec_of())
    await cluster.settle()
    assert cluster.conditions("second")["Placed"] == ("False", "QuotaExceeded")
    message = cluster.candidate("h100", "second")[2]
    assert "ResourceQuota quota leaves 8 of 30 GiB of memory, and a replica needs 11" in message


async def test_what_its_own_pods_use_does_not_keep_an_object_on_its_pool() -> None:
    cluster = Cluster(H100, L40S)
    cluster.administer(resource_quota({NVIDIA: 1}))
    cluster.apply("llama", spec_of(placement={"accelerators": ["l40s"]}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.apply("llama", spec_of(placement={"accelerators": ["h100"]}))
    await cluster.settle()
    pool = "nvidia-h100-sxm-80gb"
    assert cluster.candidate(pool)[0] == "Chosen"


@pytest.mark.parametrize("hard", [{NVIDIA: 1}, {"pods": 1}, {"limits.memory": "64Gi"}])
async def test_a_pod_that_waits_for_a_lost_pool_leaves_its_quota_to_the_next_pool(
    hard: dict[str, object],
) -> None:
    cluster = Cluster(H100, L40S)
    price(cluster, "h100", "1")
    cluster.administer(resource_quota(hard))
    limits = {"cpu": "16", "memory": "64Gi"}
    template = {"spec": {"containers": [{"name": "vllm", "resources": {"limits": limits}}]}}
    spec = spec_of(placement={"fallback": {"after": "1m"}}, podTemplate=template)
    cluster.apply("llama", spec)
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    cluster.leave("h100")
    await cluster.settle()
    (pod,) = cluster.pods()
    assert "nodeName" not in pod["spec"]
    await cluster.wait(70)
    assert cluster.deployments() == ["llama-l40s"]
    assert cluster.conditions() == SETTLED


def strategy(cluster: Cluster) -> object:
    return cluster.deployment("llama-h100-sxm-80gb")["spec"]["strategy"]["rollingUpdate"]


@pytest.mark.parametrize(("most", "want"), [(2, 0), (3, 1)])
async def test_a_roll_surges_only_within_the_quota(most: int, want: int) -> None:
    cluster = cluster_with(resource_quota({NVIDIA: most}), replicas=2)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.apply("llama", spec_of(replicas=2, engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.settle()
    assert strategy(cluster) == {"maxSurge": want, "maxUnavailable": 1 - want}
    assert cluster.conditions() == SETTLED


async def test_a_surge_that_another_pod_leaves_no_quota_is_given_up() -> None:
    cluster = cluster_with(resource_quota({NVIDIA: 2}))
    await cluster.settle()
    cluster.apply("llama", spec_of(engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.reconcile("llama")
    assert strategy(cluster) == {"maxSurge": 1, "maxUnavailable": 0}
    cluster.administer(resource_quota({NVIDIA: 1}))
    await cluster.settle()
    assert strategy(cluster) == {"maxSurge": 0, "maxUnavailable": 1}
    assert cluster.conditions() == SETTLED


async def test_replicas_that_use_a_quota_up_do_not_migrate_by_choice() -> None:
    cluster = Cluster(L40S)
    price(cluster, "l40s", "2")
    cluster.administer(resource_quota({NVIDIA: 1}))
    rebalance = {"policy": "WhenCheaperBy", "stabilizationWindow": "1m"}
    cluster.apply("llama", spec_of(placement={"rebalance": rebalance}))
    cluster.join(**H100)
    await cluster.settle()
    price(cluster, "h100", "1")
    for _ in range(2):
        await cluster.wait(70)
        assert cluster.deployments() == ["llama-l40s"]
        assert cluster.conditions() == SETTLED
    cluster.administer(resource_quota({NVIDIA: 2}))
    for _ in range(2):
        await cluster.wait(70)
        await cluster.resync()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions() == SETTLED
