"""Extra arguments of vLLM that change memory: where a model goes, and that what runs stays."""

from typing import Any

from tests.support.fleets.gpu_nodes import H100, nvidia_node
from tests.support.fleets.placing import H100_POOL, LLAMA_8B, by_pool, chosen, decide_on, reason_of
from tonnage.fit.model import Parallelism
from tonnage.placement.model import Decision, PlacedFor, Verdict

NODES = [nvidia_node("h100-0", H100)]
KEPT = {"keep": (H100_POOL, Parallelism(1)), "held": 1}
PLACED = PlacedFor(2**31, same_demand=True)
"""The replicas were placed for the spec as it is, by an operator that counted otherwise."""

MANY_ADAPTERS = ["--enable-lora", "--max-loras=32", "--max-lora-rank=512"]


def decide(*extra_args: str, **how: Any) -> Decision:
    return decide_on(NODES, LLAMA_8B, engine={"vllm": {"extraArgs": list(extra_args)}}, **how)


def test_buffers_for_adapters_need_more_gpus() -> None:
    assert chosen(decide()).parallelism == Parallelism(1)
    assert chosen(decide(*MANY_ADAPTERS)).parallelism.gpus > 1


def test_a_host_that_holds_weights_leaves_more_kv_cache() -> None:
    plain, offloaded = chosen(decide()), chosen(decide("--cpu-offload-gb=4"))
    assert offloaded.fit.account.kv_cache_bytes == plain.fit.account.kv_cache_bytes + 4 * 2**30


def test_an_argument_that_is_not_counted_is_refused_with_what_it_brings() -> None:
    decision = decide("--enable-eplb")
    candidate = by_pool(decision)[H100_POOL]
    assert decision.chosen is None
    assert reason_of(decision, H100_POOL) == (Verdict.REJECTED, "Incompatible")
    assert candidate.message.startswith(
        "the memory calculation leaves out spec.engine.vllm.extraArgs[0] --enable-eplb, which"
        " brings copies of experts; remove the argument, or allow UncountedMemory"
    )
    assert "(rule UncountedMemory)" in candidate.message


def test_the_user_may_allow_it() -> None:
    allowed = chosen(decide("--enable-eplb", placement={"allow": ["UncountedMemory"]}))
    assert allowed.overridden == ("UncountedMemory",)


class TestReplicasThatRun:
    def test_the_arguments_that_they_run_with_do_not_move_them(self) -> None:
        for arguments in (MANY_ADAPTERS, ["--enable-eplb"]):
            stays = chosen(decide(*arguments, placed_for=PLACED, **KEPT))
            assert stays.parallelism == Parallelism(1)

    def test_another_place_is_judged_by_them(self) -> None:
        elsewhere = {"keep": ("gone", Parallelism(1)), "held": 1}
        assert decide("--enable-eplb", placed_for=PLACED, **elsewhere).chosen is None

    def test_arguments_that_the_user_adds_are_judged(self) -> None:
        assert decide("--enable-eplb", **KEPT).chosen is None
        assert chosen(decide(*MANY_ADAPTERS, **KEPT)).parallelism.gpus > 1

    def test_arguments_that_fit_are_counted(self) -> None:
        stays = chosen(decide("--enable-lora", placed_for=PLACED, **KEPT))
        plain = chosen(decide(**KEPT))
        assert stays.fit.account.lora_bytes > plain.fit.account.lora_bytes == 0
