"""Decisions after starts that ran out of memory: other settings, then devices, then pools."""

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.fleets.gpu_nodes import H100, mixed_fleet, nvidia_node
from tests.support.fleets.placing import (
    CATALOG,
    H100_POOL,
    H200_POOL,
    MI300X_POOL,
    by_pool,
    chosen,
    decide_on,
    full,
    reason_of,
    taken,
)
from tonnage.api.conditions import MAX_MESSAGE_BYTES, Reason
from tonnage.fit.model import Parallelism
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    FailedStart,
    MemoryShortfall,
    ShortfallKind,
)
from tonnage.placement.model import Decision, Verdict
from tonnage.placement.oom_fallback.plan import load_oom_fallback_plan
from tonnage.placement.report import placement_status

GIB: Final = 2**30
NOTHING_HELPS: Final = MemoryShortfall(ShortfallKind.ALLOCATION, 90 * GIB, 0)
A_LITTLE: Final = MemoryShortfall(ShortfallKind.ALLOCATION, GIB // 4, GIB // 8)


def on(
    device: str,
    tensor: int,
    shortfall: MemoryShortfall | None = NOTHING_HELPS,
    adjustments: EngineAdjustments = UNADJUSTED,
) -> FailedStart:
    size = CATALOG.accelerator(device).memory_bytes
    assert size is not None
    return FailedStart(device, size, Parallelism(tensor), adjustments, shortfall)


def decide_after(*tried: FailedStart, **how: Any) -> Decision:
    return decide_on(how.pop("nodes", mixed_fleet()), failed_starts=tried, **how)


def test_the_same_parallelism_is_started_with_other_settings_first() -> None:
    option = chosen(decide_after(on("mi300x", 1, A_LITTLE)))
    assert (option.pool.name, option.parallelism) == (MI300X_POOL, Parallelism(1))
    assert option.adjustments == EngineAdjustments(max_num_batched_tokens=8192)


def test_settings_that_tonnage_chose_are_explained() -> None:
    decision = decide_after(on("mi300x", 1, A_LITTLE))
    message = by_pool(decision)[MI300X_POOL].message
    assert message.startswith("fits with TP 1, maxNumBatchedTokens 8192 (")
    assert message.endswith(
        "; Tonnage set maxNumBatchedTokens 8192 because starts with higher values ran out of memory"
    )


def test_adjustments_change_the_number_of_replicas() -> None:
    fewer = EngineAdjustments(max_num_seqs=32, max_num_batched_tokens=512)
    workload = {"concurrency": 200, "inputTokens": 100, "outputTokens": 100}
    how = {"keep": (MI300X_POOL, Parallelism(1)), "workload": workload}
    scaling = {"scaling": {"maxReplicas": 10}}
    before = chosen(decide_after(**how, **scaling))
    after = chosen(decide_after(**how, **scaling, kept_adjustments=fewer))
    assert (before.replicas, after.replicas) == (1, 7)
    assert after.adjustments == fewer


def test_more_devices_of_the_pool_come_before_another_pool_that_costs_less() -> None:
    keep = (H200_POOL, Parallelism(2))
    decision = decide_after(on("h200-sxm-141gb", 2), keep=keep)
    assert taken(decision) == (H200_POOL, 4, 1)
    assert reason_of(decision, MI300X_POOL) == (Verdict.FEASIBLE, "ReplicasRunElsewhere")


def test_twice_the_devices_come_before_half_of_them() -> None:
    keep = (H200_POOL, Parallelism(4))
    assert taken(decide_after(on("h200-sxm-141gb", 4), keep=keep)) == (H200_POOL, 8, 1)


def test_fewer_devices_are_tried_where_no_more_are_left() -> None:
    keep = (H200_POOL, Parallelism(8))
    assert taken(decide_after(on("h200-sxm-141gb", 8), keep=keep)) == (H200_POOL, 4, 1)


def test_another_pool_is_chosen_after_all_starts_on_this_one_failed() -> None:
    tried = [on("h200-sxm-141gb", tensor) for tensor in (2, 4, 8)]
    decision = decide_after(*tried, keep=(H200_POOL, Parallelism(8)))
    assert taken(decision) == (MI300X_POOL, 1, 1)
    assert reason_of(decision, H200_POOL) == (Verdict.REJECTED, "FailedBefore")


def test_a_pool_that_is_not_tried_after_failures_elsewhere_says_so() -> None:
    tried = [on("h200-sxm-141gb", 2) for _ in range(load_oom_fallback_plan().starts)]
    message = by_pool(decide_after(*tried))[MI300X_POOL].message
    assert message.startswith(f"not tried because {len(tried)} starts on other devices ran out")


def test_the_message_has_all_failed_starts_when_no_plan_is_left() -> None:
    shorter = EngineAdjustments(max_num_batched_tokens=4096)
    fewer = replace(shorter, max_num_seqs=512)
    tried = [
        on("h100-sxm-80gb", 4, A_LITTLE),
        on("h100-sxm-80gb", 4, A_LITTLE, shorter),
        on("h100-sxm-80gb", 4, NOTHING_HELPS, fewer),
        on("h100-sxm-80gb", 8, MemoryShortfall(ShortfallKind.ALLOCATION, 41 * GIB, GIB)),
    ]
    decision = decide_after(*tried, nodes=[nvidia_node("h100-0", H100)])
    assert decision.chosen is None
    assert decision.reason is Reason.OUT_OF_MEMORY
    assert decision.message == (
        f"no plan is left to try; {H100_POOL}: ran out of memory with TP 4, then with"
        " maxNumBatchedTokens 4096, then with maxNumSeqs 512; with TP 8"
        " (the last start had 1.0 of the 41.0 GiB that its last allocation needs)"
        " (8 GPUs on 1 node)"
    )


def test_the_longest_message_fits_in_a_condition() -> None:
    adjustments = [
        UNADJUSTED,
        EngineAdjustments(max_num_batched_tokens=16384),
        EngineAdjustments(max_num_batched_tokens=16384, max_num_seqs=1024),
        EngineAdjustments(0.88, 1024, 16384),
    ]
    tried = [
        on("h100-sxm-80gb", tensor, NOTHING_HELPS, each)
        for tensor, starts in ((2, 4), (4, 2), (8, 2))
        for each in adjustments[:starts]
    ]
    decision = decide_after(*tried, nodes=[nvidia_node("h100-0", H100)])
    assert decision.reason is Reason.OUT_OF_MEMORY
    assert len(decision.message.encode()) <= MAX_MESSAGE_BYTES
    assert decision.message.count("with TP") == 3


def test_a_pool_without_capacity_for_more_devices_is_left_for_another() -> None:
    nodes = mixed_fleet()
    others = full(*(f"mi300x-{number}" for number in range(4)), gpus=7, vendor="amd")
    decision = decide_after(on("mi300x", 1), nodes=nodes, pods=others)
    assert taken(decision)[0] != MI300X_POOL
    assert reason_of(decision, MI300X_POOL) == (Verdict.REJECTED, "InsufficientGPUs")


def test_a_placement_has_the_settings_that_tonnage_chose() -> None:
    decision = decide_after(on("mi300x", 1, A_LITTLE))
    option = chosen(decision)
    status = placement_status(decision, option, image="i", replicas=1, ready_replicas=0)
    assert status.adjustments is not None
    assert status.adjustments.to_dict() == {"maxNumBatchedTokens": 8192}


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_placement_with_default_settings_has_no_adjustments(tensor: int) -> None:
    decision = decide_after(on("mi300x", 1), on("h200-sxm-141gb", tensor))
    status = placement_status(decision, chosen(decision), image="i", replicas=1, ready_replicas=0)
    assert status.adjustments is None
