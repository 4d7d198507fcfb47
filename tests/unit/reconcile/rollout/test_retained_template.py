"""Whatever a later operator would render, what runs stays until a user changes it."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.faults.later_operator import (
    LATER_RELEASE,
    LATER_REPOSITORY,
    LATER_VARIABLE,
    take_over,
)
from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, WORLD, Cluster, spec_of
from tests.support.in_memory.pricing import price
from tests.support.in_memory.serving import SETTLED, served
from tonnage.api.names import ANNOTATION_POD_TEMPLATE, ANNOTATION_RENDERED_FROM
from tonnage.engines.inputs import RenderSettings
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.template_record import TemplateRecord, read_record
from tonnage.reconcile.scheduling.context import Dependencies

__all__ = ["take_over"]

TakeOver = Callable[..., None]
DEPLOYMENT = "llama-mi300x"
EIGHT = [f"llama-{number}" for number in range(8)]


def pods(cluster: Cluster) -> set[str]:
    """Every pod by its uid: one that is replaced has another."""
    return {pod["metadata"]["uid"] for pod in cluster.api.objects(PODS)}


def template(cluster: Cluster, name: str = DEPLOYMENT) -> Object:
    copied: Object = copy.deepcopy(cluster.deployment(name)["spec"]["template"])
    return copied


def image(cluster: Cluster, name: str = DEPLOYMENT) -> str:
    return str(template(cluster, name)["spec"]["containers"][0]["image"])


def variables(cluster: Cluster) -> set[str]:
    return {one["name"] for one in template(cluster)["spec"]["containers"][0]["env"]}


def release(cluster: Cluster, name: str = DEPLOYMENT) -> str:
    annotations = cluster.deployment(name)["metadata"]["annotations"]
    return str(json.loads(annotations[ANNOTATION_RENDERED_FROM])["release"])


def record(cluster: Cluster) -> TemplateRecord | None:
    """What is recorded of the template, whenever it was."""
    written = read_record(cluster.deployment(DEPLOYMENT)["metadata"]["annotations"])
    return written and replace(written, recorded_at=None)


def forget_records(cluster: Cluster) -> None:
    """The Deployments are those of an operator that kept no record of its templates."""
    for body in cluster.api.objects(DEPLOYMENTS):
        for annotation in (ANNOTATION_POD_TEMPLATE, ANNOTATION_RENDERED_FROM):
            del body["metadata"]["annotations"][annotation]
        cluster.api.put(DEPLOYMENTS, body)


# A later operator


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "by an older operator"])
async def test_a_later_operator_replaces_no_pod_of_any_object(
    take_over: TakeOver, recorded: bool
) -> None:
    cluster = Cluster(MI300X, H100, L40S)
    for name in EIGHT:
        cluster.apply(name, spec_of())
    await cluster.settle()
    if not recorded:
        forget_records(cluster)
    before, bodies = pods(cluster), cluster.api.objects(DEPLOYMENTS)
    take_over(cluster)
    await cluster.settle()
    await cluster.wait(3600)
    assert pods(cluster) == before
    after = cluster.api.objects(DEPLOYMENTS)
    assert [body["spec"] for body in after] == [body["spec"] for body in bodies]
    assert {name: cluster.conditions(name) for name in EIGHT} == dict.fromkeys(EIGHT, SETTLED)


async def test_a_later_operator_writes_nothing_but_the_update_that_it_offers(
    take_over: TakeOver,
) -> None:
    cluster = await served(MI300X)
    take_over(cluster)
    writes = cluster.api.write_count
    await cluster.settle()
    assert cluster.api.write_count == writes + 1
    update = cluster.status()["availableUpdate"]
    assert (update["release"], update["image"]) == (
        LATER_RELEASE,
        f"{LATER_REPOSITORY}:v{LATER_RELEASE}",
    )
    await cluster.resync()
    assert cluster.api.write_count == writes + 1


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "by an older operator"])
@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"replicas": 2, "workload": {"concurrency": 20}},
        {"replicas": 2, "placement": {"policy": "FewestGPUs"}},
        {"replicas": 2, "placement": {"fallback": {"after": "1h"}}},
        {"replicas": 2, "rollout": {"progressDeadline": "2h"}},
        {"replicas": 2, "rollout": {"paused": True}},
    ],
    ids=["replicas", "load", "policy", "fallback", "deadline", "pause"],
)
async def test_what_is_not_rendered_into_pods_replaces_none(
    take_over: TakeOver, change: dict[str, Any], recorded: bool
) -> None:
    cluster = await served(MI300X, replicas=2)
    if not recorded:
        forget_records(cluster)
    before = pods(cluster)
    take_over(cluster)
    await cluster.settle()
    cluster.apply("llama", spec_of(**change))
    await cluster.settle()
    assert before <= pods(cluster)
    assert len(cluster.pods()) == change["replicas"]
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_an_interconnect_that_a_pool_gets_replaces_no_replica_on_one_node(
    take_over: TakeOver,
) -> None:
    cluster = Cluster(MI300X)
    pool = {"nodeSelector": {"amd.com/gpu.device-id": "74a1"}}
    declared = {"metadata": {"name": "chat", "uid": "p", "generation": 1}, "spec": pool}
    cluster.api.put(ACCELERATOR_POOLS, declared)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    before = pods(cluster)
    take_over(cluster)
    await cluster.settle()
    interconnect = {"resource": "rdma/ib", "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}]}
    cluster.api.put(ACCELERATOR_POOLS, {**declared, "spec": {**pool, "interconnect": interconnect}})
    await cluster.settle()
    assert pods(cluster) == before
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_another_pool_that_is_taken_by_need_runs_the_same_release(
    take_over: TakeOver,
) -> None:
    cluster = await served(MI300X, H100)
    take_over(cluster)
    await cluster.settle()
    cluster.leave("mi300x")
    await cluster.settle()
    await cluster.wait(601)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions() == SETTLED
    assert image(cluster, "llama-h100-sxm-80gb") == f"{LATER_REPOSITORY}:v0.32.0"
    assert release(cluster, "llama-h100-sxm-80gb") == "0.32.0"


async def test_another_registry_mirror_of_the_operator_replaces_no_pod() -> None:
    cluster = await served(MI300X)
    before = pods(cluster)
    settings = RenderSettings(registry_mirrors=(("vllm", "mirror.example/vllm"),))
    cluster.world = Dependencies(WORLD.catalog, settings)
    cluster.start_operator()
    await cluster.settle()
    assert pods(cluster) == before
    update = cluster.status()["availableUpdate"]
    assert update["image"] == "mirror.example/vllm/vllm-openai-rocm:v0.32.0"


# The user's word


@pytest.mark.parametrize(
    "change",
    [
        {"rollout": {"upgradedAt": "2026-11-22T05:30:00Z"}},
        {"engine": {"vllm": {"version": f"v{LATER_RELEASE}"}}},
        {"engine": {"vllm": {"extraArgs": ["--seed=1"]}}},
    ],
    ids=["upgrade", "version", "another change of the pods"],
)
async def test_the_users_word_takes_what_the_operator_would_choose(
    take_over: TakeOver, change: dict[str, Any]
) -> None:
    cluster = await served(MI300X)
    before = pods(cluster)
    take_over(cluster)
    await cluster.settle()
    cluster.apply("llama", spec_of(**change))
    await cluster.settle()
    assert image(cluster) == f"{LATER_REPOSITORY}:v{LATER_RELEASE}"
    assert LATER_VARIABLE in variables(cluster)
    assert not before & pods(cluster)
    assert cluster.conditions() == SETTLED
    assert "availableUpdate" not in cluster.status()


async def test_a_restart_keeps_release_image_and_settings(take_over: TakeOver) -> None:
    cluster = await served(MI300X)
    before, name = pods(cluster), image(cluster)
    take_over(cluster)
    await cluster.settle()
    at = "2026-11-22T05:30:00Z"
    cluster.apply("llama", spec_of(rollout={"restartedAt": at}))
    await cluster.settle()
    assert not before & pods(cluster)
    assert image(cluster) == name
    assert LATER_VARIABLE not in variables(cluster)
    assert cluster.conditions() == SETTLED
    again = pods(cluster)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert not again & pods(cluster)
    assert image(cluster) == name


async def test_a_release_that_is_no_longer_pinned_is_the_operators_again(
    take_over: TakeOver,
) -> None:
    cluster = await served(MI300X, engine={"vllm": {"version": "v0.31.0"}})
    take_over(cluster)
    await cluster.settle()
    assert image(cluster).endswith(":v0.31.0")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert image(cluster) == f"{LATER_REPOSITORY}:v{LATER_RELEASE}"


async def test_a_change_of_the_pool_is_rendered_with_the_release_that_runs(
    take_over: TakeOver,
) -> None:
    cluster = await served(H100)
    take_over(cluster)
    await cluster.settle()
    price(cluster, "h100", "2.00", env=[{"name": "NCCL_DEBUG", "value": "WARN"}])
    await cluster.settle()
    name = "llama-h100-sxm-80gb"
    env = template(cluster, name)["spec"]["containers"][0]["env"]
    assert {"name": "NCCL_DEBUG", "value": "WARN"} in env
    assert image(cluster, name) == f"{LATER_REPOSITORY}:v0.32.0"


# Edits by others


@pytest.mark.parametrize("later", [False, True], ids=["same operator", "later operator"])
async def test_an_edit_of_the_template_is_corrected_to_what_was_rendered(
    take_over: TakeOver, later: bool
) -> None:
    cluster = await served(MI300X)
    if later:
        take_over(cluster)
        await cluster.settle()
    before = template(cluster)
    body = cluster.deployment(DEPLOYMENT)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "evil.example/vllm:1"
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.settle()
    assert template(cluster) == before
    assert cluster.conditions() == SETTLED


async def test_an_edit_of_a_template_without_a_record_is_not_taken_over(
    take_over: TakeOver,
) -> None:
    cluster = await served(MI300X)
    forget_records(cluster)
    body = cluster.deployment(DEPLOYMENT)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "evil.example/vllm:1"
    cluster.api.put(DEPLOYMENTS, body)
    take_over(cluster)
    await cluster.settle()
    assert "evil" not in image(cluster)


HOSTILE = [
    "",
    "no base64",
    "eJzLSM3JyQcABiwCFQ==",
    "null",
    "[" * 100_000,
    "A" * 200_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12])
@pytest.mark.parametrize("annotation", [ANNOTATION_POD_TEMPLATE, ANNOTATION_RENDERED_FROM])
async def test_an_unreadable_record_is_written_anew_and_replaces_no_pod(
    annotation: str, text: str
) -> None:
    cluster = await served(MI300X)
    before, recorded = pods(cluster), record(cluster)
    body = cluster.deployment(DEPLOYMENT)
    body["metadata"]["annotations"][annotation] = text
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.settle()
    assert pods(cluster) == before
    assert record(cluster) == recorded is not None
    assert cluster.conditions() == SETTLED


async def test_a_record_that_someone_deletes_is_no_reason_to_replace_a_pod(
    take_over: TakeOver,
) -> None:
    cluster = await served(MI300X)
    before = pods(cluster)
    take_over(cluster)
    await cluster.settle()
    forget_records(cluster)
    await cluster.settle()
    assert pods(cluster) == before
    assert release(cluster) == "0.32.0"
    assert cluster.api.object(DEPLOYMENTS, NAMESPACE, DEPLOYMENT)


# Drivers


OLD_DRIVER = {
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/cuda.driver-version.major": "550",
}
NEW_DRIVER = {
    "nvidia.com/cuda.runtime-version.full": "13.0",
    "nvidia.com/cuda.driver-version.major": "580",
}
ONE_IMAGE = "vllm/vllm-openai:v0.32.0"


async def test_a_node_with_an_older_driver_that_joins_replaces_no_pod() -> None:
    cluster = await served({**H100, "labels": NEW_DRIVER}, replicas=2)
    name = "llama-h100-sxm-80gb"
    assert image(cluster, name) == ONE_IMAGE
    before = pods(cluster)
    cluster.join(**{**H100, "name": "older", "labels": OLD_DRIVER})
    await cluster.resync()
    assert pods(cluster) == before
    assert image(cluster, name) == ONE_IMAGE
    assert cluster.status()["availableUpdate"]["image"] == f"{ONE_IMAGE}-cu129"
    assert cluster.conditions() == SETTLED


async def test_a_replica_that_comes_later_runs_on_no_driver_that_is_too_old() -> None:
    cluster = await served({**H100, "labels": NEW_DRIVER}, replicas=8)
    cluster.join(**{**H100, "name": "older", "labels": OLD_DRIVER})
    cluster.apply("llama", spec_of(replicas=9))
    await cluster.settle()
    assert image(cluster, "llama-h100-sxm-80gb") == ONE_IMAGE
    nodes = {pod["spec"].get("nodeName") for pod in cluster.pods()}
    assert nodes == {"h100-0", None}
    cluster.apply("llama", spec_of(replicas=9, rollout={"upgradedAt": "2026-11-26T10:00:00Z"}))
    for _ in range(10):
        await cluster.wait(60)
    assert image(cluster, "llama-h100-sxm-80gb") == f"{ONE_IMAGE}-cu129"
    assert {pod["spec"].get("nodeName") for pod in cluster.pods()} == {"h100-0", "older-0"}


async def test_the_last_older_driver_that_is_replaced_replaces_no_pod() -> None:
    cluster = await served({**H100, "labels": OLD_DRIVER}, replicas=2)
    before = pods(cluster)
    body = cluster.api.object(NODES, None, "h100-0")
    cluster.relabel("h100-0", {**body["metadata"]["labels"], **NEW_DRIVER})
    await cluster.resync()
    assert pods(cluster) == before
    assert image(cluster, "llama-h100-sxm-80gb") == f"{ONE_IMAGE}-cu129"
    assert cluster.status()["availableUpdate"]["image"] == ONE_IMAGE
