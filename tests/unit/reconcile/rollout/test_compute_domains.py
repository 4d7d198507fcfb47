"""ComputeDomains: made before the workload whose pods claim from them, deleted after the last of
these pods."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.support.api_server.api_calls import Call
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.serving import SETTLED
from tonnage.kube.kinds import ACCELERATOR_POOLS, COMPUTE_DOMAINS, LEADER_WORKER_SETS, PODS
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.actions import Delete
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observe import observe
from tonnage.reconcile.rollout.claim_templates import delete_claim_templates

RACK = {
    **H100,
    "count": 4,
    "resources": {"rdma/ib": "1k"},
    "labels": {"rack": "a", "nvidia.com/gpu.clique": "a.1"},
}
NAME = "llama-h100-sxm-80gb-2nodes-nvlink"


def declare(cluster: Cluster, interconnect: Object) -> None:
    spec = {"nodeSelector": {"rack": "a"}, "interconnect": interconnect}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "rack", "uid": "rack"}, "spec": spec})


async def serving(
    interconnect: Object | None = None, model: str = "deepseek-v3", **spec: Any
) -> Cluster:
    """An object that serves from a pool with this interconnect."""
    cluster = Cluster(RACK)
    cluster.has_leader_worker_set = cluster.has_compute_domains = True
    declare(cluster, interconnect or {"computeDomain": True})
    cluster.apply("llama", spec_of(model=model, **spec))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    return cluster


def domains(cluster: Cluster) -> list[str]:
    return [body["metadata"]["name"] for body in cluster.api.objects(COMPUTE_DOMAINS)]


def order_of(cluster: Cluster, verb: str) -> list[Kind]:
    """The kinds of the groups and their domains, in the order of these writes."""
    kinds = (COMPUTE_DOMAINS, LEADER_WORKER_SETS)
    calls: list[Call] = cluster.api.effective_writes()
    return [call.kind for call in calls if call.kind in kinds and call.verb == verb]


def with_finalizer(body: Object) -> Object:
    return {**body, "metadata": {**body["metadata"], "finalizers": ["resource.nvidia.com/x"]}}


def without_claims(deployment: ChildDeployment) -> ChildDeployment:
    """The workload as if its pods claimed nothing."""
    body = deepcopy(deployment.child.body)
    for template in ("leaderTemplate", "workerTemplate"):
        del body["spec"]["leaderWorkerTemplate"][template]["spec"]["resourceClaims"]
    return replace(deployment, child=replace(deployment.child, body=body))


async def test_all_groups_of_a_placement_are_in_one_domain() -> None:
    cluster = await serving(replicas=2)
    assert domains(cluster) == [NAME]
    pods = cluster.api.objects(PODS)
    assert len(pods) == 4
    for pod in pods:
        (claim,) = pod["spec"]["resourceClaims"]
        assert claim["resourceClaimTemplateName"] == NAME
    assert order_of(cluster, "apply")[:2] == [COMPUTE_DOMAINS, LEADER_WORKER_SETS]


async def test_nothing_is_written_while_nothing_changes() -> None:
    cluster = await serving()
    writes = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == writes


async def test_a_domain_that_somebody_deletes_is_made_again() -> None:
    cluster = await serving()
    cluster.api.remove(COMPUTE_DOMAINS, NAMESPACE, NAME)
    await cluster.settle()
    assert domains(cluster) == [NAME]


async def test_a_domain_ends_after_the_placement() -> None:
    cluster = await serving()
    cluster.join(**{**MI300X, "count": 1, "gpusPerNode": 8})
    elsewhere = {"accelerators": ["mi300x"]}
    cluster.apply("llama", spec_of(model="deepseek-v3", placement=elsewhere))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert domains(cluster) == []
    assert order_of(cluster, "delete") == [LEADER_WORKER_SETS, COMPUTE_DOMAINS]


async def test_a_domain_stays_while_a_pod_in_it_has_not_ended() -> None:
    cluster = await serving()
    observation = await observe(cluster.sources, Key(NAMESPACE, "llama"))
    assert observation is not None
    moved = replace(observation, deployments=tuple(map(without_claims, observation.deployments)))
    assert list(delete_claim_templates(moved, [])) == []
    (delete,) = delete_claim_templates(replace(moved, pods=()), [])
    assert isinstance(delete, Delete)
    assert (delete.kind, delete.child.name) == (COMPUTE_DOMAINS, NAME)


async def test_a_domain_that_waits_for_the_finalizer_of_its_driver_is_deleted_once() -> None:
    cluster = await serving()
    (body,) = cluster.api.objects(COMPUTE_DOMAINS)
    cluster.api.put(COMPUTE_DOMAINS, with_finalizer(body))
    cluster.join(**{**MI300X, "count": 1, "gpusPerNode": 8})
    elsewhere = {"accelerators": ["mi300x"]}
    cluster.apply("llama", spec_of(model="deepseek-v3", placement=elsewhere))
    await cluster.settle()
    assert domains(cluster) == [NAME]
    assert order_of(cluster, "delete") == [LEADER_WORKER_SETS, COMPUTE_DOMAINS]


async def test_a_pool_that_declares_a_domain_later_replaces_groups_as_any_interconnect() -> None:
    cluster = await serving({"resource": "rdma/ib"})
    assert domains(cluster) == []
    before = {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}
    declare(cluster, {"resource": "rdma/ib", "computeDomain": True})
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert domains(cluster) == [NAME]
    pods = cluster.api.objects(PODS)
    assert len(pods) == 2
    assert not before & {pod["metadata"]["uid"] for pod in pods}


def withdraw_permission(cluster: Cluster, *, restarts: bool) -> None:
    """The operator may not list ComputeDomains any more. One that starts so knows of none."""
    cluster.has_compute_domains = False
    cluster.denied.add(COMPUTE_DOMAINS)
    if restarts:
        cluster.start_operator()


def grant_permission(cluster: Cluster) -> None:
    cluster.denied.remove(COMPUTE_DOMAINS)
    cluster.has_compute_domains = True
    cluster.start_operator()


def writes_of_domains(cluster: Cluster) -> int:
    return sum(call.kind == COMPUTE_DOMAINS for call in cluster.api.effective_writes())


WHERE_ONE_NODE_WOULD_DO = {"multiNode": {"maxNodes": 2}, "policy": "HighestThroughput"}


@pytest.mark.parametrize("restarts", [False, True])
async def test_groups_stay_without_the_permission_also_where_one_node_would_do(
    *, restarts: bool
) -> None:
    cluster = await serving(model="llama-3.3-70b", placement=WHERE_ONE_NODE_WOULD_DO)
    before = {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}
    assert len(before) == 2
    writes = writes_of_domains(cluster)
    withdraw_permission(cluster, restarts=restarts)
    await cluster.resync()
    await cluster.wait(3600)
    assert cluster.conditions() == SETTLED
    assert {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)} == before
    assert domains(cluster) == ["llama-h100-sxm-80gb-2nodes-nvlink"]
    assert writes_of_domains(cluster) == writes


async def test_a_change_of_the_user_takes_effect_without_the_permission() -> None:
    """The group keeps its nodes and its domain; the operator cannot write the domain."""
    cluster = await serving()
    writes = writes_of_domains(cluster)
    withdraw_permission(cluster, restarts=True)
    engine = {"vllm": {"extraArgs": ["--seed=7"]}}
    cluster.apply("llama", spec_of(model="deepseek-v3", engine=engine))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    pods = cluster.api.objects(PODS)
    assert len(pods) == 2
    for pod in pods:
        assert "--seed=7" in pod["spec"]["containers"][0]["args"]
        assert [claim["resourceClaimTemplateName"] for claim in pod["spec"]["resourceClaims"]] == [
            NAME
        ]
    assert writes_of_domains(cluster) == writes


async def test_a_domain_that_lost_its_placement_is_deleted_once_the_permission_is_back() -> None:
    cluster = await serving()
    withdraw_permission(cluster, restarts=True)
    cluster.join(**{**MI300X, "count": 1, "gpusPerNode": 8})
    elsewhere = {"accelerators": ["mi300x"]}
    cluster.apply("llama", spec_of(model="deepseek-v3", placement=elsewhere))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert domains(cluster) == [NAME]
    grant_permission(cluster)
    await cluster.settle()
    assert domains(cluster) == []


async def test_a_group_stays_where_its_pool_declares_a_domain_without_the_permission() -> None:
    cluster = await serving({"resource": "rdma/ib"}, placement=WHERE_ONE_NODE_WOULD_DO)
    before = {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}
    withdraw_permission(cluster, restarts=False)
    declare(cluster, {"resource": "rdma/ib", "computeDomain": True})
    await cluster.settle()
    await cluster.wait(3600)
    assert {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)} == before
    assert "may not list" in cluster.message("Placed")


@pytest.mark.parametrize("kind", ["has_leader_worker_set", "has_compute_domains"])
async def test_groups_stay_while_a_kind_is_listed_anew(kind: str) -> None:
    """A watch whose version is too old ends; the store keeps its objects until the next list."""
    cluster = await serving(model="llama-3.3-70b", placement=WHERE_ONE_NODE_WOULD_DO)
    before, writes = cluster.api.objects(PODS), cluster.api.write_count
    setattr(cluster, kind, False)
    await cluster.resync()
    assert cluster.conditions() == SETTLED
    setattr(cluster, kind, True)
    await cluster.resync()
    assert (cluster.api.objects(PODS), cluster.api.write_count) == (before, writes)
