"""A model that cannot be read again clears none of its earlier findings."""

import pytest

from tests.support.in_memory.cluster import Cluster, spec_of, write_count
from tonnage.api.conditions import Reason
from tonnage.api.parse import parse_spec
from tonnage.checkpoint.facts import checkpoint_from_inline
from tonnage.checkpoint.lookup import ModelAnswer, ModelPending, ModelUnavailable
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object

MI300X = {"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8}
PENDING = ModelPending("reading acme/llama from the Hub")
UNREACHABLE = ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "the Hub does not answer", 30.0)
GONE = ModelUnavailable(Reason.MODEL_NOT_FOUND, "there is no acme/llama", None)


def hub_spec(**spec: object) -> Object:
    source = {"source": {"huggingFace": {"repo": "acme/llama"}}}
    return spec_of() | {"model": source} | spec


def known_model() -> ModelAnswer:
    source = parse_spec(spec_of()).model.source.inline
    assert source is not None
    return checkpoint_from_inline(source)


async def served_from_the_hub() -> Cluster:
    cluster = Cluster(MI300X)
    cluster.hub.answer = known_model()
    cluster.apply("llama", hub_spec())
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    return cluster


@pytest.mark.parametrize("answer", [PENDING, UNREACHABLE], ids=["pending", "unreachable"])
async def test_a_restart_with_an_unknown_model_changes_nothing(
    answer: ModelAnswer,
) -> None:
    cluster = await served_from_the_hub()
    before, writes = cluster.status(), write_count(cluster.api, (INFERENCE_DEPLOYMENTS,))
    cluster.hub.answer = answer
    cluster.start_operator()
    await cluster.settle()
    assert cluster.status() == before
    assert write_count(cluster.api, (INFERENCE_DEPLOYMENTS,)) == writes


async def test_replicas_that_fail_meanwhile_are_reported() -> None:
    cluster = await served_from_the_hub()
    cluster.hub.answer = UNREACHABLE
    cluster.start_operator()
    cluster.leave("mi300x")
    await cluster.settle()
    conditions = cluster.conditions()
    assert conditions["Accepted"] == ("True", "Valid")
    assert conditions["Ready"][0] == "False"
    assert conditions["Available"][0] == "False"


async def test_a_changed_spec_is_not_judged_by_what_was_known_before() -> None:
    cluster = await served_from_the_hub()
    cluster.hub.answer = PENDING
    cluster.apply("llama", hub_spec(replicas=2))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("Unknown", "ResolvingModel")
    assert cluster.conditions()["Ready"] == ("False", "ResolvingModel")
    assert len(cluster.pods()) == 1


async def test_a_removed_model_is_reported() -> None:
    cluster = await served_from_the_hub()
    cluster.hub.answer = GONE
    cluster.start_operator()
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "ModelNotFound")
    assert len(cluster.pods()) == 1


async def test_a_refused_spec_is_not_remembered_as_accepted() -> None:
    cluster = Cluster(MI300X)
    cluster.hub.answer = known_model()
    cluster.apply("llama", hub_spec(workload={"maxModelLen": 9_999_999}))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    cluster.hub.answer = PENDING
    cluster.start_operator()
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("Unknown", "ResolvingModel")
