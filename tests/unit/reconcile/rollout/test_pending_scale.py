"""The number of replicas is followed whatever else is in doubt: 0 and less always work."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.serving import served
from tonnage.api.conditions import Reason
from tonnage.api.parse import parse_spec
from tonnage.checkpoint.facts import checkpoint_from_inline
from tonnage.checkpoint.lookup import ModelAnswer, ModelPending, ModelUnavailable
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import InvalidError

DEPLOYMENT = "llama-mi300x"
SMALL_POOLS = ({**MI300X, "gpusPerNode": 2}, {**H100, "gpusPerNode": 2})
SPREAD: dict[str, Any] = {"placement": {"spread": {"policy": "WhenShort"}}}
HUB = {"source": {"huggingFace": {"repo": "org/model"}}}
UNREACHABLE = ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "no answer", 60.0)
REVOKED = ModelUnavailable(Reason.MODEL_ACCESS_DENIED, "the token was revoked", 60.0)
UNKNOWN_CARD = {"placement": {"accelerators": ["no-such-card"]}}
UNREADABLE = {"engine": {"vllm": {"extraArgs": "--not-a-list"}}}


def wanted(cluster: Cluster) -> dict[str, int]:
    """Replicas by Deployment."""
    bodies = cluster.api.objects(DEPLOYMENTS)
    return {body["metadata"]["name"]: body["spec"]["replicas"] for body in bodies}


def lose_pool(cluster: Cluster) -> None:
    cluster.leave("mi300x")


def silence_pool(cluster: Cluster) -> None:
    cluster.silence("mi300x")


OUT_OF_SIGHT = pytest.mark.parametrize(
    "lose", [lose_pool, silence_pool], ids=["no node of it exists", "its nodes are silent"]
)


# The pool is out of sight


@OUT_OF_SIGHT
@pytest.mark.parametrize("replicas", [0, 1])
async def test_fewer_replicas_are_taken_from_a_pool_out_of_sight(lose: Any, replicas: int) -> None:
    cluster = await served(MI300X, replicas=3)
    lose(cluster)
    await cluster.settle()
    cluster.apply("llama", spec_of(replicas=replicas))
    await cluster.settle()
    assert wanted(cluster) == {DEPLOYMENT: replicas}
    assert len(cluster.pods()) == replicas
    reservations = cluster.fleet.view().snapshot().reservations
    assert sum(one.replicas for one in reservations) == replicas


@OUT_OF_SIGHT
async def test_an_object_at_zero_on_a_pool_out_of_sight_is_ready(lose: Any) -> None:
    cluster = await served(MI300X, replicas=2)
    lose(cluster)
    cluster.apply("llama", spec_of(replicas=0))
    await cluster.settle()
    conditions = cluster.conditions()
    assert conditions["Placed"] == ("True", "ScaledToZero")
    assert conditions["Ready"] == ("True", "ScaledToZero")
    assert conditions["Available"] == ("False", "ScaledToZero")
    assert "Stalled" not in conditions
    assert cluster.status()["desiredReplicas"] == 0


async def test_an_object_without_a_number_on_no_pool_is_not_at_zero() -> None:
    cluster = Cluster()
    cluster.apply("llama", {**spec_of(), "replicas": None})
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "NoMatchingPool")


@OUT_OF_SIGHT
async def test_more_replicas_wait_for_a_pool_out_of_sight(lose: Any) -> None:
    cluster = await served(MI300X, replicas=2)
    lose(cluster)
    cluster.apply("llama", spec_of(replicas=5))
    await cluster.settle()
    assert wanted(cluster) == {DEPLOYMENT: 2}


async def test_the_pool_comes_back_and_more_replicas_start() -> None:
    cluster = await served(MI300X, replicas=3)
    cluster.silence("mi300x")
    cluster.apply("llama", spec_of(replicas=1))
    await cluster.settle()
    cluster.silence("mi300x", heard=True)
    cluster.apply("llama", spec_of(replicas=4))
    await cluster.settle()
    assert wanted(cluster) == {DEPLOYMENT: 4}
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_secondary_placements_of_pools_out_of_sight_give_up_replicas_first() -> None:
    cluster = await served(*SMALL_POOLS, replicas=4, **SPREAD)
    assert sum(wanted(cluster).values()) == 4
    for prefix in ("mi300x", "h100"):
        cluster.leave(prefix)
    await cluster.settle()
    for replicas in (3, 2, 1, 0):
        cluster.apply("llama", spec_of(replicas=replicas, **SPREAD))
        await cluster.settle()
        assert sum(wanted(cluster).values()) == replicas
    assert cluster.pods() == []


# The spec is refused


@pytest.mark.parametrize("refused", [UNKNOWN_CARD, UNREADABLE], ids=["invalid", "unreadable"])
@pytest.mark.parametrize("replicas", [0, 1])
async def test_fewer_replicas_of_a_refused_spec_are_followed(
    refused: dict[str, Any], replicas: int
) -> None:
    cluster = await served(MI300X, replicas=3)
    cluster.apply("llama", spec_of(replicas=replicas, **refused))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    assert wanted(cluster) == {DEPLOYMENT: replicas}
    assert len(cluster.pods()) == replicas
    reservations = cluster.fleet.view().snapshot().reservations
    assert sum(one.replicas for one in reservations) == replicas


@pytest.mark.parametrize("refused", [UNKNOWN_CARD, UNREADABLE], ids=["invalid", "unreadable"])
async def test_no_replica_is_added_from_a_refused_spec(refused: dict[str, Any]) -> None:
    cluster = await served(MI300X, replicas=2)
    cluster.apply("llama", spec_of(replicas=5, **refused))
    await cluster.settle()
    assert wanted(cluster) == {DEPLOYMENT: 2}


@pytest.mark.parametrize("replicas", ["2", 1.5, True, -1, None], ids=repr)
async def test_what_is_no_number_of_replicas_changes_none(replicas: object) -> None:
    cluster = await served(MI300X, replicas=2)
    cluster.apply("llama", {**spec_of(**UNKNOWN_CARD), "replicas": replicas})
    await cluster.settle()
    assert wanted(cluster) == {DEPLOYMENT: 2}


@pytest.mark.parametrize(
    "answer", [ModelPending("reading"), UNREACHABLE, REVOKED], ids=["pending", "down", "revoked"]
)
@pytest.mark.parametrize("replicas", [0, 1])
async def test_fewer_replicas_of_an_unknown_model_are_followed(
    answer: ModelAnswer, replicas: int
) -> None:
    cluster = Cluster(MI300X)
    spec = spec_of(replicas=3)
    cluster.hub.answer = checkpoint_of(spec)
    cluster.apply("llama", spec | {"model": HUB})
    await cluster.settle()
    assert len(cluster.pods()) == 3
    cluster.hub.answer = answer
    cluster.start_operator()
    cluster.apply("llama", spec_of(replicas=replicas) | {"model": HUB})
    await cluster.settle()
    assert wanted(cluster) == {DEPLOYMENT: replicas}


async def test_fewer_replicas_are_followed_while_the_api_server_rejects_the_new_template() -> None:
    cluster = await served(MI300X, replicas=3)
    rejected = InvalidError("Deployment is invalid: spec.template: too long")
    cluster.api.fail_next("apply", rejected, kind=DEPLOYMENTS, times=10)
    cluster.apply("llama", spec_of(replicas=0, engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "ChildRefused")
    assert wanted(cluster) == {DEPLOYMENT: 0}


async def test_a_migration_of_a_refused_spec_is_scaled_on_both_pools() -> None:
    cluster = await served(MI300X, H100, replicas=3, placement={"accelerators": ["mi300x"]})
    cluster.behaviours["llama"] = lambda pod: pod.get("status", {})
    there = {"placement": {"accelerators": ["h100-sxm-80gb"]}}
    cluster.apply("llama", spec_of(replicas=3, **there))
    await cluster.settle()
    assert len(cluster.deployments()) == 2
    cluster.apply("llama", spec_of(replicas=0, **UNKNOWN_CARD))
    await cluster.settle()
    assert set(wanted(cluster).values()) == {0}
    assert cluster.pods() == []


def checkpoint_of(spec: dict[str, Any]) -> ModelAnswer:
    """The facts of the spec's inline config, as a Hub gives them."""
    inline = parse_spec(spec).model.source.inline
    assert inline is not None
    return checkpoint_from_inline(inline)


async def test_what_runs_does_not_grow_for_a_spec_that_no_pool_takes() -> None:
    cluster = await served(MI300X, replicas=1)
    cluster.apply("llama", spec_of(quantization="unknown-format", replicas=4))
    await cluster.settle()
    assert cluster.conditions()["Placed"][0] == "False"
    assert wanted(cluster) == {DEPLOYMENT: 1}
