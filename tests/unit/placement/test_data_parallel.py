"""Data-parallel attention with shared experts, and tensor-parallel groups over nodes: where they
are proposed, ranked and refused."""

from collections.abc import Sequence
from typing import Any

from tests.support.fleets.gpu_nodes import Raw, amd_node, with_resources
from tests.support.fleets.placing import (
    CATALOG,
    DEEPSEEK_V3,
    LLAMA_8B,
    OWNER,
    chosen,
    decide_on,
    pools_of,
    spec_of,
)
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import Parallelism
from tonnage.placement.judge import PoolJudge
from tonnage.placement.model import Option, Rejection, Request
from tonnage.placement.report import placement_status, read_parallelism

BUSY = {"concurrency": 2000, "inputTokens": 1500, "outputTokens": 500, "maxModelLen": 16384}
MI300XS = [amd_node(f"mi300x-{number}") for number in range(4)]
CONNECTED = [with_resources(node, {"rdma/ib": "1k"}) for node in MI300XS]


def options(
    nodes: list[Raw],
    checkpoint: Checkpoint = DEEPSEEK_V3,
    version: str | None = None,
    **placement: Any,
) -> Sequence[Option]:
    """Every option that holds the workload on these nodes, which are one pool."""
    engine = {"vllm": {"version": version}}
    spec = spec_of(workload=BUSY, placement=placement, **({"engine": engine} if version else {}))
    request = Request(OWNER, spec, checkpoint, has_leader_worker_set=True)
    (pool,) = pools_of(nodes)
    judged = PoolJudge(request, CATALOG).options(pool)
    assert not isinstance(judged, Rejection), judged.message
    return judged


def parallelisms(
    nodes: list[Raw], checkpoint: Checkpoint = DEEPSEEK_V3, **placement: Any
) -> set[Parallelism]:
    return {option.parallelism for option in options(nodes, checkpoint, **placement)}


class TestOnOneNode:
    def test_many_requests_of_deepseek_v3_take_fewer_gpus_with_data_parallel_attention(
        self,
    ) -> None:
        """All ranks of a tensor-parallel group hold the same latent KV cache."""
        shared = chosen(decide_on(MI300XS, DEEPSEEK_V3, workload=BUSY))
        never = {"dataParallel": "Never"}
        split = chosen(decide_on(MI300XS, DEEPSEEK_V3, workload=BUSY, placement=never))
        assert shared.parallelism == Parallelism(data=8)
        assert split.parallelism.data == 1
        assert shared.gpus < split.gpus

    def test_a_replica_holds_the_requests_of_all_its_ranks(self) -> None:
        option = chosen(decide_on(MI300XS, DEEPSEEK_V3, workload=BUSY))
        assert option.replicas == 1
        assert option.kv_cache_tokens == 8 * option.fit.account.kv_cache_tokens >= 2000 * 2000

    def test_given_replicas_each_rank_has_to_hold_its_part_of_their_requests(self) -> None:
        option = chosen(decide_on(MI300XS, DEEPSEEK_V3, workload=BUSY, replicas=1))
        assert option.parallelism == Parallelism(data=8)
        assert option.fit.required_tokens == 2000 // 8 * 2000

    def test_a_tensor_parallel_group_wins_where_both_cost_the_same(self) -> None:
        few = {**BUSY, "concurrency": 8}
        option = chosen(decide_on(MI300XS, DEEPSEEK_V3, workload=few))
        assert option.parallelism == Parallelism(tensor=4)

    def test_a_dense_model_has_no_such_option(self) -> None:
        assert {each.data for each in parallelisms(MI300XS, LLAMA_8B)} == {1}

    def test_the_status_says_how_many_ranks_there_are_and_is_read_back(self) -> None:
        decision = decide_on(MI300XS, DEEPSEEK_V3, workload=BUSY)
        option = chosen(decision)
        status = placement_status(decision, option, image="vllm", replicas=1, ready_replicas=1)
        assert status.to_dict()["dataParallelSize"] == 8
        assert read_parallelism(status) == option.parallelism


class TestOverNodes:
    def test_ranks_span_nodes_where_the_pool_has_an_interconnect(self) -> None:
        over = Parallelism(data=16, nodes=2)
        assert over in parallelisms(CONNECTED, multiNode={"maxNodes": 2})
        assert over not in parallelisms(MI300XS, multiNode={"maxNodes": 2, "allowTcp": True})

    def test_a_tensor_parallel_group_spans_nodes_only_where_the_user_asks(self) -> None:
        over, asked = Parallelism(tensor=16, nodes=2), {"maxNodes": 2, "tensorParallel": True}
        assert over in parallelisms(CONNECTED, multiNode=asked)
        assert over not in parallelisms(CONNECTED, multiNode={"maxNodes": 2})
        assert over not in parallelisms(MI300XS, multiNode={**asked, "allowTcp": True})

    def test_an_older_release_runs_on_one_node_only(self) -> None:
        """It has no launcher of its own for several nodes."""
        asked = {"maxNodes": 2, "tensorParallel": True}
        older = options(CONNECTED, version="v0.19.0", multiNode=asked)
        assert {option.parallelism.nodes for option in older} == {1}

    def test_one_node_is_preferred_without_the_users_word(self) -> None:
        assert {each.nodes for each in parallelisms(CONNECTED)} == {1}

    def test_a_group_over_nodes_waits_for_the_network_in_every_layer(self) -> None:
        asked = {"maxNodes": 2, "tensorParallel": True}
        seconds = {
            option.parallelism: option.estimate.time_per_output_token_seconds
            for option in options(CONNECTED, LLAMA_8B, multiNode=asked)
            if option.estimate is not None
        }
        assert seconds[Parallelism(tensor=16, nodes=2)] > seconds[Parallelism(tensor=8)]
