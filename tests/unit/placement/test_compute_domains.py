"""Pools whose nodes share memory over NVLink, in a ComputeDomain of NVIDIA's DRA driver."""

import itertools
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import H100, Raw, nvidia_node
from tests.support.fleets.placing import (
    DEEPSEEK_V3,
    LLAMA_70B,
    by_pool,
    chosen,
    decide_among,
    declared,
    pools_of,
)
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import Pool
from tonnage.placement.model import Decision
from tonnage.placement.reasons import RejectedReason

CLIQUE = "nvidia.com/gpu.clique"
GROUPS: Raw = {"placement": {"multiNode": {"maxNodes": 2}, "policy": "HighestThroughput"}}
STATED = {"name": "NCCL_MNNVL_ENABLE", "value": "2"}


def nodes_in(*cliques: str | None) -> list[Raw]:
    """Nodes of 8 H100, each in this NVLink domain."""
    return [
        nvidia_node(
            f"n{number}", H100 | {"team": "a"} | ({} if clique is None else {CLIQUE: clique})
        )
        for number, clique in enumerate(cliques)
    ]


def rack_of(*cliques: str | None, **interconnect: Any) -> Pool:
    spec = {"interconnect": {"computeDomain": True, **interconnect}}
    (pool,) = pools_of(
        nodes_in(*cliques), declared_pools=(declared("rack", {"team": "a"}, **spec),)
    )
    return pool


def decide_for_deepseek(pool: Pool, **how: Any) -> Decision:
    kinds = {"has_leader_worker_set": True, "has_compute_domains": True, **how}
    return decide_among((pool,), DEEPSEEK_V3, **kinds)


def test_a_replica_takes_nodes_of_one_domain_and_exchanges_data_over_nvlink() -> None:
    pool = rack_of("a", "a", "b")
    option = chosen(decide_for_deepseek(pool))
    assert (option.parallelism.nodes, option.capacity) == (2, 1)
    assert option.estimate is not None
    assert "its nodes exchange data at 450 GB/s a GPU" in option.notes


def test_without_adapters_pods_need_no_capability_and_no_resource() -> None:
    network = rack_of("a", "a").network
    assert network is not None
    assert (network.resource, network.capabilities, network.topology_key) == (None, (), CLIQUE)


def test_what_a_pool_states_of_its_adapters_counts_as_without_nvlink() -> None:
    network = rack_of("a", "a", resource="rdma/ib", gigabytesPerSecondPerGPU=50).network
    assert network is not None
    assert (network.resource, network.count, network.capabilities) == ("rdma/ib", 1, ("IPC_LOCK",))
    assert network.bytes_per_second == 50e9
    assert network.compute_domain


def test_without_the_kind_a_pool_is_rejected_for_several_nodes_alone() -> None:
    pool = rack_of("a", "a")
    candidate = by_pool(decide_for_deepseek(pool, has_compute_domains=False))["rack"]
    assert candidate.reason == RejectedReason.NO_INTERCONNECT
    for text in ("spec.interconnect.computeDomain of AcceleratorPool rack", "DRA driver 25.8"):
        assert text in candidate.message
    decision = decide_among((pool,), LLAMA_70B, has_leader_worker_set=True)
    assert chosen(decision).parallelism.nodes == 1


def test_a_kind_that_comes_later_counts_at_once() -> None:
    pool = rack_of("a", "a")
    assert decide_for_deepseek(pool, has_compute_domains=False).chosen is None
    assert decide_for_deepseek(pool).chosen is not None


def test_a_group_with_channels_stays_where_the_kind_is_missing_and_one_node_would_do() -> None:
    """The kind is gone, or the operator may not list it any more."""
    pool = rack_of("a", "a")
    kinds = {"has_leader_worker_set": True, "has_compute_domains": True}
    first = chosen(decide_among((pool,), LLAMA_70B, **kinds, **GROUPS))
    assert first.parallelism.nodes == 2
    keep: dict[str, Any] = {"keep": ("rack", first.parallelism), "held": 1, **GROUPS}
    for has in itertools.product([True, False], repeat=2):
        kinds = dict(zip(kinds, has, strict=True))
        running = {**keep, **kinds, "channel_pools": frozenset({"rack"})}
        assert chosen(decide_among((pool,), LLAMA_70B, **running)).parallelism == first.parallelism
    new = decide_among((pool,), LLAMA_70B, has_leader_worker_set=True, **GROUPS)
    assert chosen(new).parallelism.nodes == 1


def test_a_group_without_channels_is_not_moved_for_a_domain_that_cannot_be_made() -> None:
    """Its pool declares computeDomain later: the rejection leaves the replicas where they are."""
    pool = rack_of("a", "a", resource="rdma/ib")
    keep = {"keep": ("rack", Parallelism(8, pipeline=2, nodes=2)), "held": 1}
    decision = decide_among((pool,), LLAMA_70B, has_leader_worker_set=True, **keep, **GROUPS)
    assert decision.chosen is None
    assert by_pool(decision)["rack"].reason == RejectedReason.NO_INTERCONNECT


@pytest.mark.parametrize("clique", ["", None])
def test_nodes_without_a_domain_are_not_connected(clique: str | None) -> None:
    pool = rack_of("a", "a", clique)
    assert pool.network is None
    candidate = by_pool(decide_for_deepseek(pool))["rack"]
    assert candidate.reason == RejectedReason.NO_INTERCONNECT
    assert f"needs nodes that all have the label {CLIQUE}" in candidate.message


def test_a_stated_topology_stands_for_the_label() -> None:
    network = rack_of("a", None, topologyKey="rack").network
    assert network is not None
    assert network.topology_key == "rack"


@pytest.mark.parametrize("interconnect", [{}, {"computeDomain": False}, {"count": 8}])
def test_an_interconnect_without_resource_and_domain_is_refused(interconnect: Raw) -> None:
    body = {"nodeSelector": {"team": "a"}, "interconnect": interconnect}
    with pytest.raises(InvalidSpecError, match=r"spec\.interconnect: set resource, or compute"):
        parse_model(AcceleratorPoolSpec, body, "spec")


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"interconnect": {"resource": "rdma/ib"}}, "0"),
        ({"interconnect": {"resource": "rdma/ib", "topologyKey": "rack"}}, "0"),
        ({"interconnect": {"computeDomain": True}}, None),
        ({"interconnect": {"resource": "rdma/ib", "env": [STATED]}}, "2"),
        ({"interconnect": {"resource": "rdma/ib"}, "env": [STATED]}, None),
    ],
)
def test_nccl_uses_nvlink_between_nodes_only_with_a_channel(spec: Raw, want: str | None) -> None:
    pool, *_ = pools_of(
        nodes_in("a", "a"), declared_pools=(declared("rack", {"team": "a"}, **spec),)
    )
    assert pool.network is not None
    env = {variable.name: variable.value for variable in pool.network.env}
    assert env.get("NCCL_MNNVL_ENABLE") == want


def test_engines_that_turn_fabric_memory_off_keep_it_on_in_a_domain() -> None:
    for pool in (rack_of("a", "a"), rack_of("a", None, topologyKey="rack")):
        assert pool.network is not None
        env = [(one.name, one.value) for one in pool.network.env]
        assert env == [("NCCL_CUMEM_ENABLE", "1")]


def test_nodes_outside_nvlink_domains_need_no_variable_for_it() -> None:
    pool = declared("a", {"team": "a"}, interconnect={"resource": "rdma/ib"})
    (built,) = pools_of(nodes_in("a", None), declared_pools=(pool,))
    assert built.network is not None
    assert built.network.env == ()
