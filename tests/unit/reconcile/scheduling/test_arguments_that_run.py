"""Replicas with extra arguments whose memory an older operator did not count."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, Cluster, spec_of
from tests.support.in_memory.serving import SETTLED
from tonnage.catalog.vllm.flags import EngineFlag

EPLB = "--enable-eplb"


def spec(*extra_args: str) -> Any:
    return spec_of(engine={"vllm": {"extraArgs": list(extra_args)}})


async def upgraded(*extra_args: str) -> Cluster:
    """Replicas that an operator placed which counted no arguments, under an operator that does."""
    cluster = Cluster(H100)
    with pytest.MonkeyPatch.context() as older:
        older.setattr(EngineFlag, "uncounted", None)
        cluster.apply("llama", spec(*extra_args))
        await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.start_operator()
    return cluster


def template(cluster: Cluster) -> Any:
    (name,) = cluster.deployments()
    return cluster.deployment(name)["spec"]["template"]


async def test_an_upgrade_neither_moves_nor_restarts_replicas() -> None:
    cluster = await upgraded(EPLB)
    before = template(cluster)
    await cluster.resync()
    assert cluster.conditions() == SETTLED
    assert template(cluster) == before


async def test_a_new_object_with_such_arguments_is_placed_nowhere() -> None:
    cluster = Cluster(H100)
    cluster.apply("llama", spec(EPLB))
    await cluster.settle()
    assert cluster.conditions()["Placed"][0] == "False"
    assert cluster.deployments() == []


async def test_an_argument_that_a_user_adds_is_not_rolled_out() -> None:
    cluster = await upgraded("--seed=1")
    cluster.apply("llama", spec("--seed=1", EPLB))
    await cluster.settle()
    assert cluster.conditions()["Placed"][0] == "False"
    assert EPLB not in template(cluster)["spec"]["containers"][0]["args"]
