"""With approval: Manual no replica changes before a person approves it, and status has the
proposal."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.support.in_memory.approving import (
    MANUAL,
    OTHER_IMAGE,
    approve,
    approved,
    change,
    proposed,
)
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.pricing import place_of, price
from tests.support.in_memory.serving import SETTLED, served
from tonnage.api.parse import parse_spec
from tonnage.checkpoint.facts import checkpoint_from_inline
from tonnage.checkpoint.lookup import ModelPending
from tonnage.fit.model import Parallelism
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.reconcile.observation.plan_terms import Terms

MINUTE = 60.0

# The first plan


async def test_nothing_is_created_before_the_first_plan_is_approved() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.apply("llama", spec_of(**MANUAL, replicas=2))
    await cluster.settle()
    assert cluster.deployments() == []
    assert cluster.api.objects(SERVICES) == []
    assert cluster.conditions() == {
        "Accepted": ("True", "Valid"),
        "Placed": ("False", "AwaitingApproval"),
        "Progressing": ("False", "Waiting"),
        "Available": ("False", "NotPlaced"),
        "Ready": ("False", "AwaitingApproval"),
    }
    plan = proposed(cluster)
    assert (
        plan.items()
        >= {
            "pool": "amd-mi300x",
            "accelerator": "mi300x",
            "tensorParallelSize": 1,
            "pipelineParallelSize": 1,
            "replicas": 2,
            "costPerHour": "3.98",
        }.items()
    )
    assert "would start 2 replicas on pool amd-mi300x (mi300x, TP 1)" in plan["message"]
    message = cluster.message("Placed")
    assert f"plan {plan['hash']} waits for approval: {plan['message']}" in message
    assert "`kubectl tonnage approve llama -n chat`" in message


async def test_an_approved_plan_is_carried_out_as_an_automatic_one() -> None:
    cluster = await approved(MI300X, H100, replicas=2)
    automatic = await served(MI300X, H100, replicas=2)
    (approved_deployment,) = cluster.api.objects(DEPLOYMENTS)
    (deployment,) = automatic.api.objects(DEPLOYMENTS)
    assert approved_deployment["spec"] == deployment["spec"]
    annotations = approved_deployment["metadata"]["annotations"]
    assert annotations == deployment["metadata"]["annotations"]
    assert cluster.status()["plan"] == cluster.inference_deployment()["spec"]["approvedPlan"]


async def test_an_object_that_waits_for_approval_holds_no_gpu_and_blocks_no_other() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 1})
    cluster.apply("elder", spec_of(**MANUAL))
    await cluster.settle()
    cluster.clock.advance(1)
    cluster.apply("younger", spec_of())
    await cluster.settle()
    assert cluster.conditions("younger") == SETTLED
    await cluster.resync()
    assert cluster.conditions("elder")["Placed"] == ("False", "InsufficientGPUs")
    assert proposed(cluster, "elder") is None
    cluster.delete("younger")
    await cluster.settle()
    assert cluster.conditions("elder")["Placed"] == ("False", "AwaitingApproval")


async def test_an_outdated_approval_is_reported_and_not_followed() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.apply("llama", spec_of(**MANUAL))
    await cluster.settle()
    before = proposed(cluster)["hash"]
    cluster.cordon("mi300x")
    approve(cluster)
    await cluster.settle()
    assert cluster.deployments() == []
    now = proposed(cluster)
    assert now["hash"] != before
    want = (
        f"approved {before}, now {now['hash']}: the plan changed since (pool from amd-mi300x to"
        " nvidia-h100-sxm-80gb, accelerator from mi300x to h100-sxm-80gb"
    )
    assert now["outdatedApproval"].startswith(want)
    assert cluster.message("Placed").startswith(want)
    await cluster.resync()
    assert proposed(cluster) == now
    approve(cluster)
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions() == SETTLED


async def test_an_approval_of_an_unknown_plan_is_reported() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(**MANUAL, approvedPlan="0123456789abcdef"))
    await cluster.settle()
    assert "the approval is of another plan" in proposed(cluster)["outdatedApproval"]


async def test_a_plan_in_git_needs_no_second_approval() -> None:
    first = await approved(MI300X, H100)
    hash_in_git = first.inference_deployment()["spec"]["approvedPlan"]
    elsewhere = await served(MI300X, H100, **MANUAL, approvedPlan=hash_in_git)
    assert proposed(elsewhere) is None


async def test_a_lack_of_gpus_is_reported_before_any_approval() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 1})
    cluster.occupy("mi300x-0", 1)
    cluster.apply("llama", spec_of(**MANUAL))
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    cluster.free("mi300x-0")
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "AwaitingApproval")


TERMS = Terms("amd", "mi300x", Parallelism(1), "vllm:1", ("vllm", "serve"), ("llama",), "models")
OTHER_TERMS: dict[str, Any] = {
    "pool": "nvidia",
    "accelerator": "h100",
    "parallelism": Parallelism(1, 2),
    "image": "vllm:2",
    "command": (),
    "arguments": ("llama", "--seed=1"),
    "claim": None,
}


@pytest.mark.parametrize("term", [field.name for field in fields(Terms)])
def test_every_term_makes_another_plan(term: str) -> None:
    assert replace(TERMS, **{term: OTHER_TERMS[term]}).hash != TERMS.hash


def test_the_hash_of_a_plan_in_git_outlives_the_version_that_made_it() -> None:
    assert TERMS.hash == "855074dc03006fdf"


# What runs


PLAN_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another image": (
        {"engine": OTHER_IMAGE},
        "image from vllm/vllm-openai-rocm:v0.32.0 to registry.local/vllm:other",
    ),
    "longer requests": ({"workload": {"maxModelLen": 16384}}, "arguments (--max-model-len)"),
    "an argument of the user": (
        {"engine": {"vllm": {"extraArgs": ["--api-key=hush", "--seed=1"]}}},
        "arguments (--api-key, --seed)",
    ),
    "another accelerator": (
        {"placement": {"accelerators": ["h100-sxm-80gb"]}},
        "pool from amd-mi300x to nvidia-h100-sxm-80gb, accelerator from mi300x to h100-sxm-80gb",
    ),
}


@pytest.mark.parametrize("case", PLAN_CHANGES)
async def test_running_replicas_stay_until_another_plan_is_approved(case: str) -> None:
    wanted, described = PLAN_CHANGES[case]
    cluster = await approved(MI300X, H100, replicas=2)
    before, pods, plan = cluster.api.objects(DEPLOYMENTS), cluster.pods(), cluster.status()["plan"]
    change(cluster, **wanted)
    await cluster.settle()
    await cluster.wait(24 * 60 * MINUTE)
    assert cluster.api.objects(DEPLOYMENTS) == before
    assert cluster.pods() == pods
    assert cluster.conditions() == {
        "Accepted": ("True", "Valid"),
        "Placed": ("False", "AwaitingApproval"),
        "Progressing": ("False", "Waiting"),
        "Available": ("True", "ReplicasReady"),
        "Ready": ("False", "AwaitingApproval"),
    }
    assert f"it would change {described}" in cluster.message("Placed")
    assert "hush" not in str(cluster.status())
    assert cluster.status()["plan"] == plan
    assert place_of(cluster)["readyReplicas"] == 2
    approve(cluster)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert not {pod["metadata"]["name"] for pod in pods} & {
        pod["metadata"]["name"] for pod in cluster.pods()
    }
    assert proposed(cluster) is None


@pytest.mark.parametrize(("replicas", "want"), [(4, 4), (9, 8), (1, 1), (0, 0)])
async def test_running_replicas_scale_while_another_plan_is_pending(
    replicas: int, want: int
) -> None:
    cluster = await approved(MI300X, replicas=2)
    change(cluster, engine=OTHER_IMAGE)
    await cluster.settle()
    hash_ = proposed(cluster)["hash"]
    change(cluster, replicas=replicas)
    await cluster.settle()
    assert len(cluster.pods()) == want
    images = {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()}
    assert images <= {"vllm/vllm-openai-rocm:v0.32.0"}
    assert proposed(cluster)["hash"] == hash_
    writes = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == writes
    change(cluster, replicas=2)
    await cluster.settle()
    approve(cluster)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_reverting_the_change_needs_no_approval() -> None:
    cluster = await approved(MI300X)
    before = cluster.inference_deployment()["spec"]
    change(cluster, engine=OTHER_IMAGE)
    await cluster.settle()
    cluster.apply("llama", before)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert proposed(cluster) is None


FREE_CHANGES: dict[str, dict[str, Any]] = {
    "more replicas": {"replicas": 4},
    "fewer replicas": {"replicas": 1},
    "none": {"replicas": 0},
    "a label": {"template": {"metadata": {"labels": {"team": "chat"}}}},
    "a restart": {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}},
    "a policy that leads to the same place": {"placement": {"policy": "FewestGPUs"}},
}


async def test_a_deleted_service_is_created_again_while_a_plan_waits() -> None:
    cluster = await approved(MI300X)
    change(cluster, engine=OTHER_IMAGE)
    await cluster.settle()
    cluster.api.remove(SERVICES, NAMESPACE, "llama")
    await cluster.settle()
    assert [body["metadata"]["name"] for body in cluster.api.objects(SERVICES)] == ["llama"]
    assert proposed(cluster) is not None


async def test_an_approved_plan_does_not_run_during_a_pause() -> None:
    cluster = await approved(MI300X)
    running = cluster.status()["plan"]
    change(cluster, engine=OTHER_IMAGE, rollout={"paused": True})
    await cluster.settle()
    waiting = approve(cluster)
    await cluster.settle()
    assert cluster.status()["plan"] == running
    change(cluster, rollout={})
    await cluster.settle()
    assert cluster.status()["plan"] == waiting


@pytest.mark.parametrize("case", FREE_CHANGES)
async def test_a_change_without_a_new_plan_needs_no_approval(case: str) -> None:
    cluster = await approved(MI300X, H100, replicas=2)
    plan = cluster.status()["plan"]
    change(cluster, **FREE_CHANGES[case])
    await cluster.settle()
    assert cluster.conditions()["Ready"][0] == "True"
    assert proposed(cluster) is None
    assert cluster.status()["plan"] == plan
    wanted = FREE_CHANGES[case].get("replicas", 2)
    assert len(cluster.pods()) == wanted


async def test_a_running_plan_needs_no_approval_when_approval_becomes_manual() -> None:
    cluster = await served(MI300X)
    change(cluster, **MANUAL)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert proposed(cluster) is None
    assert cluster.status()["plan"]


async def test_automatic_approval_carries_out_the_pending_plan() -> None:
    cluster = await approved(MI300X)
    change(cluster, engine=OTHER_IMAGE)
    await cluster.settle()
    change(cluster, approval="Automatic")
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    status = cluster.status()
    assert place_of(cluster)["image"] == "registry.local/vllm:other"
    assert "proposedPlan" not in status
    assert "plan" not in status


async def test_a_pool_that_is_declared_under_a_name_of_its_own_needs_no_approval() -> None:
    cluster = await approved(MI300X)
    pods = cluster.pods()
    price(cluster, "mi300x", "2")
    await cluster.resync()
    assert place_of(cluster)["pool"] == "mi300x"
    assert cluster.conditions() == SETTLED
    assert cluster.pods() == pods


async def test_a_deleted_child_is_created_again_as_approved() -> None:
    cluster = await approved(MI300X)
    cluster.api.remove(DEPLOYMENTS, NAMESPACE, "llama-mi300x")
    await cluster.settle()
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("approval", [{}, {"approvedPlan": "0123456789abcdef"}])
async def test_a_proposal_is_kept_while_the_model_cannot_be_resolved(
    approval: dict[str, str],
) -> None:
    cluster = Cluster(MI300X)
    spec = spec_of(**MANUAL, **approval)
    source = parse_spec(spec).model.source.inline
    assert source is not None
    cluster.hub.answer = checkpoint_from_inline(source)
    cluster.apply("llama", {**spec, "model": {"source": {"huggingFace": {"repo": "acme/llama"}}}})
    await cluster.settle()
    before = cluster.status()
    assert before["proposedPlan"]
    cluster.hub.answer = ModelPending("reading acme/llama from the Hub")
    cluster.start_operator()
    await cluster.settle()
    assert cluster.status() == before
