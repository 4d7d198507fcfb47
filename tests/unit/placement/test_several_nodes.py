"""Replicas over several nodes: where they are proposed, ranked and refused."""

from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import (
    H100,
    H200,
    Raw,
    amd_node,
    gpu_pod_body,
    nvidia_node,
    with_resources,
)
from tests.support.fleets.placing import (
    DEEPSEEK_V3,
    H100_POOL,
    LLAMA_8B,
    LLAMA_70B,
    MI300X_POOL,
    by_pool,
    checkpoint_of,
    chosen,
    decide_among,
    decide_on,
    declared,
    pools_of,
    reason_of,
    taken,
)
from tonnage.api.conditions import Reason
from tonnage.fit.model import Footprint, Parallelism
from tonnage.fleet.model import Reservation
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.placement.model import Decision, Verdict

RDMA = {"rdma/ib": "1k"}
CLIQUE = "nvidia.com/gpu.clique"
TWO_NODES = Parallelism(tensor=8, pipeline=2, nodes=2)
OTHER = ("chat", "other")


def h100s(count: int, **resources: str) -> list[Raw]:
    """Nodes of 8 H100 with an RDMA device plugin."""
    return [
        with_resources(nvidia_node(f"h100-{number}"), {**RDMA, **resources})
        for number in range(count)
    ]


def in_cliques(*cliques: str | None) -> list[Raw]:
    """Nodes of 8 H100 with RDMA, each in this NVLink domain."""
    return [
        with_resources(
            nvidia_node(f"n{number}", H100 | ({} if clique is None else {CLIQUE: clique})), RDMA
        )
        for number, clique in enumerate(cliques)
    ]


def decide_for_deepseek(nodes: list[Raw], **how: Any) -> Decision:
    return decide_on(nodes, DEEPSEEK_V3, has_leader_worker_set=True, **how)


class TestProposals:
    def test_deepseek_v3_takes_two_nodes_of_h100_as_two_stages(self) -> None:
        option = chosen(decide_for_deepseek(h100s(4)))
        assert (option.pool.name, option.parallelism) == (H100_POOL, TWO_NODES)
        assert (option.gpus, str(option.cost_per_hour)) == (16, "47.84")
        assert [stage.layers for stage in option.fit.account.stages] == [31, 30]

    def test_it_takes_one_node_of_mi300x_where_that_costs_less(self) -> None:
        decision = decide_for_deepseek([*h100s(4), amd_node("mi300x-0")])
        assert taken(decision) == (MI300X_POOL, 4, 1)
        candidate = by_pool(decision)[H100_POOL]
        assert (candidate.verdict, candidate.reason) == (Verdict.FEASIBLE, "CostsMore")
        assert candidate.message.startswith("fits with TP 8, PP 2 on 2 nodes (")
        assert candidate.message.endswith("; 47.84/h against 7.96/h")

    def test_a_model_that_fits_on_one_node_stays_on_one(self) -> None:
        fast = {"policy": "HighestThroughput"}
        decision = decide_on(h100s(4), LLAMA_70B, has_leader_worker_set=True, placement=fast)
        assert chosen(decision).parallelism.nodes == 1

    def test_a_user_can_ask_for_several_nodes_where_one_is_enough(self) -> None:
        fast = {"policy": "HighestThroughput", "multiNode": {"maxNodes": 2}}
        decision = decide_on(h100s(4), LLAMA_70B, has_leader_worker_set=True, placement=fast)
        assert chosen(decision).parallelism == TWO_NODES

    def test_one_node_wins_where_several_cost_the_same(self) -> None:
        decision = decide_on(
            h100s(4),
            LLAMA_8B,
            has_leader_worker_set=True,
            placement={"multiNode": {"maxNodes": 2}, "policy": "FewestGPUs"},
        )
        assert chosen(decision).parallelism == Parallelism()

    def test_no_more_nodes_than_the_pool_has(self) -> None:
        decision = decide_for_deepseek(h100s(1))
        assert reason_of(decision, H100_POOL) == (Verdict.REJECTED, "WeightsDoNotFit")

    def test_never_means_one_node(self) -> None:
        decision = decide_for_deepseek(h100s(4), placement={"multiNode": "Never"})
        assert reason_of(decision, H100_POOL) == (Verdict.REJECTED, "WeightsDoNotFit")

    def test_no_more_nodes_than_the_user_allows(self) -> None:
        kimi = checkpoint_of("kimi-k3-like")
        for most, want in ((2, "WeightsDoNotFit"), (4, "LowestCost")):
            limits = {"multiNode": {"maxNodes": most}}
            decision = decide_on(h100s(4), kimi, has_leader_worker_set=True, placement=limits)
            assert by_pool(decision)[H100_POOL].reason == want

    def test_a_model_without_pipeline_stages_has_no_such_option(self) -> None:
        mamba = checkpoint_of("mamba-codestral-7b")
        limits = {"multiNode": {"maxNodes": 2}, "policy": "HighestThroughput"}
        decision = decide_on(h100s(2), mamba, has_leader_worker_set=True, placement=limits)
        assert chosen(decision).parallelism.nodes == 1

    def test_the_estimate_is_less_certain_and_says_over_what(self) -> None:
        candidate = by_pool(decide_for_deepseek(h100s(4)))[H100_POOL]
        assert candidate.option is not None
        assert candidate.option.estimate is not None
        assert candidate.option.estimate.band > 0.4
        assert "its nodes exchange data at 25 GB/s a GPU" in candidate.message


class TestNetworks:
    def test_without_a_network_the_reason_says_what_to_declare(self) -> None:
        decision = decide_for_deepseek([nvidia_node(f"h100-{number}") for number in range(4)])
        assert decision.reason is Reason.DOES_NOT_FIT
        candidate = by_pool(decision)[H100_POOL]
        assert candidate.reason == "NoInterconnect"
        assert candidate.message.startswith("fits with TP 8, PP 2 on 2 nodes (")
        assert f"spec.interconnect of AcceleratorPool {H100_POOL}" in candidate.message
        assert "spec.placement.multiNode: {maxNodes: 2, allowTcp: true}" in candidate.message

    def test_tcp_is_used_where_the_user_allows_it(self) -> None:
        nodes = [nvidia_node(f"h100-{number}") for number in range(4)]
        tcp = {"multiNode": {"maxNodes": 2, "allowTcp": True}}
        option = chosen(decide_for_deepseek(nodes, placement=tcp))
        assert option.parallelism == TWO_NODES
        assert "its nodes exchange data at 1 GB/s a GPU" in option.notes

    def test_a_declared_network_needs_no_resource_that_is_known(self) -> None:
        nodes = [nvidia_node(f"h100-{number}", H100 | {"team": "a"}) for number in range(4)]
        interconnect = {"resource": "example.com/fabric", "gigabytesPerSecondPerGPU": 50}
        pool = declared("a", {"team": "a"}, interconnect=interconnect)
        option = chosen(decide_for_deepseek(nodes, declared_pools=(pool,)))
        assert option.pool.network is not None
        assert option.pool.network.capabilities == ("IPC_LOCK",)
        assert "its nodes exchange data at 50 GB/s a GPU" in option.notes

    @pytest.mark.parametrize(
        ("resource", "network"),
        [
            ("rdma/hca", ("rdma/hca", 1)),
            ("vpc.amazonaws.com/efa", ("vpc.amazonaws.com/efa", 32)),
            ("amd.com/vnic", None),
            ("networking.gke.io.networks/rdma-0", None),
            ("example.com/fabric", None),
        ],
    )
    def test_networks_are_recognised_by_the_resources_of_all_nodes(
        self, resource: str, network: tuple[str, int] | None
    ) -> None:
        nodes = [with_resources(nvidia_node(f"n{n}"), {resource: "32"}) for n in range(2)]
        (pool,) = pools_of(nodes)
        assert (pool.network and (pool.network.resource, pool.network.count)) == network
        (mixed,) = pools_of([*nodes, nvidia_node("without")])
        assert mixed.network is None

    def test_a_network_that_needs_more_than_its_resource_is_named(self) -> None:
        nodes = [with_resources(amd_node(f"m{n}"), {"amd.com/vnic": "8"}) for n in range(4)]
        kimi = checkpoint_of("kimi-k3-like")
        decision = decide_on(nodes, kimi, has_leader_worker_set=True)
        assert reason_of(decision, MI300X_POOL) == (Verdict.REJECTED, "NoInterconnect")
        assert "its nodes offer amd.com/vnic" in by_pool(decision)[MI300X_POOL].message


class TestCapacity:
    def test_whole_nodes_are_needed(self) -> None:
        pod = gpu_pod_body("p", node="h100-1", gpus={"nvidia": "1"})
        gpu_pod = read_gpu_pod(pod)
        assert gpu_pod is not None
        decision = decide_for_deepseek(h100s(2), pods=(gpu_pod,))
        assert decision.reason is Reason.INSUFFICIENT_GPUS
        assert decision.message == (
            f"needs 8 free GPUs on each of 2 nodes; {H100_POOL} has 15 free of 16, at most 8 on"
            " one node"
        )

    def test_other_replicas_on_several_nodes_reserve_all_of_theirs(self) -> None:
        reserved = Reservation(OTHER, "h100", H100_POOL, Footprint(8, 2), 1)
        for nodes, want in ((3, 0), (4, 1), (7, 2)):
            decision = decide_for_deepseek(h100s(nodes), reservations=(reserved,))
            option = by_pool(decision)[H100_POOL].option
            assert option is not None
            assert option.capacity == want

    def test_the_nodes_of_a_replica_are_in_one_topology_domain(self) -> None:
        racks = ("a", "a", "b", "c")
        nodes = [
            with_resources(nvidia_node(f"n{n}", H100 | {"team": "a", "rack": rack}), RDMA)
            for n, rack in enumerate(racks)
        ]
        anywhere = declared("a", {"team": "a"}, interconnect={"resource": "rdma/ib"})
        in_rack = declared(
            "a", {"team": "a"}, interconnect={"resource": "rdma/ib", "topologyKey": "rack"}
        )
        capacities = []
        for pool in (anywhere, in_rack):
            (built,) = pools_of(nodes, declared_pools=(pool,))
            capacities.append(built.replica_capacity(Footprint(8, 2)))
        assert capacities == [2, 1]
        three = pools_of(nodes[1:], declared_pools=(in_rack,))
        decision = decide_among(three, DEEPSEEK_V3, has_leader_worker_set=True)
        assert "on each of 2 nodes with the same rack" in decision.message

    def test_a_replica_that_waits_takes_the_nodes_of_one_domain(self) -> None:
        racks = ("a", "a", "a", "b", "b")
        nodes = [
            with_resources(nvidia_node(f"n{n}", H100 | {"team": "a", "rack": rack}), RDMA)
            for n, rack in enumerate(racks)
        ]
        pool = declared(
            "a", {"team": "a"}, interconnect={"resource": "rdma/ib", "topologyKey": "rack"}
        )
        reserved = Reservation(OTHER, "h100", "a", Footprint(8, 2), 1)
        (built,) = pools_of(nodes, declared_pools=(pool,), reservations=(reserved,))
        assert {node.name for node in built.nodes if not node.free} == {"n3", "n4"}
        assert built.replica_capacity(Footprint(8, 2)) == 1
        assert built.replica_capacity(Footprint(8, 3)) == 1

    def test_nodes_of_an_nvlink_domain_need_no_declaration_to_stay_together(self) -> None:
        (built,) = pools_of(in_cliques("a", "a", "b", "c"))
        assert built.network is not None
        assert built.network.topology_key == CLIQUE
        assert built.replica_capacity(Footprint(8, 2)) == 1
        (apart,) = pools_of(in_cliques("a", "b", "c"))
        decision = decide_among((apart,), DEEPSEEK_V3, has_leader_worker_set=True)
        assert f"on each of 2 nodes with the same {CLIQUE}" in decision.message

    @pytest.mark.parametrize("clique", ["", None])
    def test_one_node_outside_any_domain_leaves_the_others_free_to_combine(
        self, clique: str | None
    ) -> None:
        (built,) = pools_of(in_cliques("a", "b", clique))
        assert built.network is not None
        assert built.network.topology_key is None
        assert built.replica_capacity(Footprint(8, 2)) == 1

    def test_a_declared_topology_comes_before_the_nvlink_domain(self) -> None:
        stated = {"resource": "rdma/ib", "topologyKey": "rack"}
        selector = {"nvidia.com/gpu.present": "true"}
        for interconnect, want in ((stated, "rack"), ({"resource": "rdma/ib"}, CLIQUE)):
            pool = declared("a", selector, interconnect=interconnect)
            built, *_ = pools_of(in_cliques("a", "b"), declared_pools=(pool,))
            assert built.name == "a"
            assert built.network is not None
            assert built.network.topology_key == want

    def test_a_domain_without_a_network_is_no_network(self) -> None:
        """Pods use NVLink between nodes only with a ComputeDomain, which is not created here."""
        nodes = [nvidia_node(f"n{n}", H100 | {CLIQUE: "a"}) for n in range(2)]
        decision = decide_for_deepseek(nodes)
        assert reason_of(decision, H100_POOL) == (Verdict.REJECTED, "NoInterconnect")

    def test_growth_counts_together_with_free_nodes(self) -> None:
        nodes = [with_resources(nvidia_node("n0", H100 | {"team": "a"}), RDMA)]
        pool = declared("a", {"team": "a"}, maxNodes=2)
        decision = decide_for_deepseek(nodes, declared_pools=(pool,))
        option = chosen(decision)
        assert (option.capacity, option.grown_capacity, option.awaited_nodes) == (0, 1, 1)


class TestKinds:
    def test_without_the_kind_the_reason_says_how_to_install_it(self) -> None:
        decision = decide_on(h100s(4), DEEPSEEK_V3)
        assert decision.reason is Reason.DOES_NOT_FIT
        candidate = by_pool(decision)[H100_POOL]
        assert candidate.reason == "WorkloadKindMissing"
        assert (
            "LeaderWorkerSet, which runs a replica on several nodes, is not installed"
            in candidate.message
        )
        assert "kubectl apply --server-side -f https://" in candidate.message

    def test_without_the_kind_one_node_options_go_on(self) -> None:
        nodes = [*h100s(4), nvidia_node("h200", H200)]
        assert chosen(decide_on(nodes, DEEPSEEK_V3)).parallelism == Parallelism(8)
