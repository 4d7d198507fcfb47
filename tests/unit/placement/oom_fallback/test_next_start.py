"""The next start of a replica on the same devices after a start that ran out of memory."""

from dataclasses import replace
from typing import Final

import pytest

from tests.support.fleets.placing import CATALOG, LLAMA_8B, LLAMA_70B
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.engines.registry import ENGINE_FITS
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.model import EngineOptions, MemoryFit, Parallelism
from tonnage.fit.questions.question import FitQuestion, answer
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    FailedStart,
    MemoryShortfall,
    ShortfallKind,
)
from tonnage.placement.oom_fallback.next_start import Start, next_start
from tonnage.placement.oom_fallback.plan import load_oom_fallback_plan

GIB: Final = 2**30
MIB: Final = 2**20

ALLOCATION: Final = MemoryShortfall(ShortfallKind.ALLOCATION, 200 * MIB, 100 * MIB)
NO_KV_CACHE: Final = MemoryShortfall(ShortfallKind.KV_CACHE, None, None)


def ask(
    checkpoint: Checkpoint = LLAMA_8B, device: str = "h100-sxm-80gb", **options: object
) -> FitQuestion:
    """Ask whether one device holds the model, with requests of 8k tokens."""
    accelerator = CATALOG.accelerator(device)
    assert accelerator.memory_bytes is not None
    engine = EngineOptions("v0.32.0", 8192, **options)  # type: ignore[arg-type]  # of a test's own
    return FitQuestion(
        checkpoint,
        accelerator,
        accelerator.memory_bytes,
        Parallelism(),
        engine,
        memory=VLLM_MEMORY,
    )


def start_after(question: FitQuestion, *shortfalls: MemoryShortfall | None) -> Start | None:
    """Return the next start after starts that failed with these, one after the other."""
    tried: list[FailedStart] = []
    for shortfall in shortfalls:
        start = next_start(question, tried, None, CATALOG)
        assert start is not None, tried
        tried.append(failed_start(question, start.adjustments, shortfall))
    return next_start(question, tried, None, CATALOG)


def failed_start(
    question: FitQuestion, adjustments: EngineAdjustments, shortfall: MemoryShortfall | None
) -> FailedStart:
    device = question.accelerator.id, question.device_bytes
    return FailedStart(*device, question.parallelism, adjustments, shortfall)


def after(question: FitQuestion, *shortfalls: MemoryShortfall | None) -> EngineAdjustments | None:
    """Return the adjustments of the start after these failures."""
    start = start_after(question, *shortfalls)
    return start.adjustments if start else None


def test_the_first_start_uses_the_settings_of_vllm() -> None:
    start = next_start(ask(), [], None, CATALOG)
    assert start == Start(UNADJUSTED, ask().options, answer(ask(), CATALOG))


def test_settings_are_lowered_in_turn_where_the_device_was_full() -> None:
    question = ask()
    want = [
        EngineAdjustments(max_num_batched_tokens=4096),
        EngineAdjustments(max_num_batched_tokens=4096, max_num_seqs=512),
        EngineAdjustments(0.88, 512, 4096),
        None,
    ]
    assert [after(question, *[ALLOCATION] * starts) for starts in (1, 2, 3, 4)] == want


def test_a_start_is_planned_with_its_own_settings() -> None:
    start = start_after(ask(), ALLOCATION)
    assert start is not None
    assert start.options == replace(ask().options, max_num_batched_tokens=4096)
    assert start.verdict == answer(replace(ask(), options=start.options), CATALOG)


def test_settings_that_free_too_little_are_skipped() -> None:
    lacked = MemoryShortfall(ShortfallKind.ALLOCATION, 3 * GIB, 0)
    assert after(ask(), lacked) == EngineAdjustments(0.88, 512, 4096)


def test_a_shortage_beyond_all_settings_leaves_only_other_devices() -> None:
    lacked = MemoryShortfall(ShortfallKind.ALLOCATION, 40 * GIB, 0)
    assert after(ask(), lacked) is None


def test_the_share_of_the_device_is_the_free_memory() -> None:
    question = ask()
    free = int(question.device_bytes * 0.8567)
    lacked = MemoryShortfall(ShortfallKind.FREE_MEMORY, question.device_bytes, free)
    assert after(question, lacked) == EngineAdjustments(gpu_memory_utilization=0.85)


@pytest.mark.parametrize("free", [None, 0, 17 * GIB], ids=["unreported", "none", "too little"])
def test_a_share_too_small_for_the_model_is_not_tried(free: int | None) -> None:
    lacked = MemoryShortfall(ShortfallKind.FREE_MEMORY, 70 * GIB, free)
    assert after(ask(), lacked) is None


def test_a_smaller_share_does_not_help_a_kv_cache() -> None:
    question = ask()
    first = answer(question, CATALOG)
    assert isinstance(first, MemoryFit)
    lacks = MemoryShortfall(
        ShortfallKind.KV_CACHE,
        first.account.request_kv_bytes,
        first.account.request_kv_bytes - 300 * MIB,
    )
    adjustments = after(question, lacks)
    assert adjustments is not None
    assert adjustments.gpu_memory_utilization is None
    assert adjustments.max_num_batched_tokens is not None


def test_a_missing_kv_cache_becomes_a_correction() -> None:
    question = ask()
    before = answer(question, CATALOG)
    assert isinstance(before, MemoryFit)
    available = before.account.request_kv_bytes - MIB
    lacks = MemoryShortfall(ShortfallKind.KV_CACHE, before.account.request_kv_bytes, available)
    start = start_after(question, lacks)
    assert start is not None
    assert isinstance(start.verdict, MemoryFit)
    account = start.verdict.account
    assert account.correction_bytes == before.account.kv_cache_bytes - available
    freed = before.account.activation_bytes - account.activation_bytes
    freed += before.account.graph_bytes - account.graph_bytes
    assert account.kv_cache_bytes == available + freed >= account.needed_kv_bytes


def test_a_kv_cache_without_any_memory_is_corrected_by_its_planned_size() -> None:
    start = start_after(ask(LLAMA_70B, "mi300x"), NO_KV_CACHE)
    assert start is not None
    assert start.adjustments == EngineAdjustments(max_num_seqs=512, max_num_batched_tokens=4096)
    assert isinstance(start.verdict, MemoryFit)
    assert start.verdict.account.kv_cache_bytes < 4 * GIB


def test_an_unknown_failure_leaves_only_other_devices() -> None:
    assert after(ask(), None) is None


@pytest.mark.parametrize(
    ("fixed", "want"),
    [
        ({"max_num_batched_tokens": 8192}, EngineAdjustments(max_num_seqs=512)),
        ({"max_num_seqs": 1024}, EngineAdjustments(max_num_batched_tokens=4096)),
        (
            {"max_num_batched_tokens": 8192, "max_num_seqs": 1024},
            EngineAdjustments(gpu_memory_utilization=0.88),
        ),
        (
            {
                "max_num_batched_tokens": 8192,
                "max_num_seqs": 1024,
                "gpu_memory_utilization": 0.92,
            },
            None,
        ),
    ],
    ids=["batch", "sequences", "both", "everything"],
)
def test_settings_of_the_user_never_change(
    fixed: dict[str, float], want: EngineAdjustments | None
) -> None:
    assert after(ask(**fixed), ALLOCATION) == want


def test_a_batch_is_never_smaller_than_max_num_seqs() -> None:
    """vLLM refuses max_num_batched_tokens below max_num_seqs."""
    question = ask(max_num_seqs=8192, max_num_batched_tokens=None)
    assert after(question, ALLOCATION) == EngineAdjustments(gpu_memory_utilization=0.88)


def test_unchunked_prompts_keep_their_batch() -> None:
    question = ask(enable_chunked_prefill=False)
    assert after(question, ALLOCATION) == EngineAdjustments(max_num_seqs=512)


def test_replicas_keep_their_settings() -> None:
    now = EngineAdjustments(max_num_seqs=256)
    start = next_start(ask(), [], now, CATALOG)
    assert start is not None
    assert start.adjustments == now
    tried = [failed_start(ask(), UNADJUSTED, ALLOCATION)]
    kept = next_start(ask(), tried, now, CATALOG)
    assert kept is not None
    assert kept.adjustments == now


def test_failed_replicas_do_not_keep_their_settings() -> None:
    now = EngineAdjustments(max_num_seqs=256)
    start = next_start(ask(), [failed_start(ask(), now, ALLOCATION)], now, CATALOG)
    assert start is not None
    assert start.adjustments == EngineAdjustments(max_num_seqs=256, max_num_batched_tokens=4096)


@pytest.mark.parametrize(
    "other",
    [
        {"accelerator_id": "mi300x"},
        {"parallelism": Parallelism(2)},
        {"device_bytes": 40 * GIB},
    ],
    ids=["another accelerator", "another split", "a smaller device"],
)
def test_a_failure_elsewhere_is_no_evidence_here(other: dict[str, object]) -> None:
    tried = replace(failed_start(ask(), UNADJUSTED, ALLOCATION), **other)  # type: ignore[arg-type]  # as above
    start = next_start(ask(), [tried], None, CATALOG)
    assert start is not None
    assert start.adjustments == UNADJUSTED


def test_an_object_has_a_limited_number_of_starts() -> None:
    elsewhere = replace(failed_start(ask(), UNADJUSTED, None), parallelism=Parallelism(8))
    starts = load_oom_fallback_plan().starts
    assert next_start(ask(), [elsewhere] * (starts - 1), None, CATALOG) is not None
    assert next_start(ask(), [elsewhere] * starts, None, CATALOG) is None


def test_further_parallelisms_have_fewer_starts_than_the_first() -> None:
    first = replace(failed_start(ask(), UNADJUSTED, ALLOCATION), parallelism=Parallelism(2))
    tried = [first, failed_start(ask(), UNADJUSTED, ALLOCATION)]
    start = next_start(ask(), tried, None, CATALOG)
    assert start is not None
    assert (
        next_start(
            ask(), [*tried, failed_start(ask(), start.adjustments, ALLOCATION)], None, CATALOG
        )
        is None
    )


def test_a_failed_start_is_never_repeated_in_any_order() -> None:
    shorter = EngineAdjustments(max_num_batched_tokens=4096)
    tried = [failed_start(ask(), shorter, ALLOCATION), failed_start(ask(), UNADJUSTED, ALLOCATION)]
    start = next_start(ask(), tried, None, CATALOG)
    assert start is not None
    assert start.adjustments == replace(shorter, max_num_seqs=512)


@pytest.mark.parametrize(
    ("engine", "kind", "want"),
    [
        ("vllm", ShortfallKind.FREE_MEMORY, EngineAdjustments(0.8, 1024, 8192)),
        ("vllm", ShortfallKind.KV_CACHE, EngineAdjustments(0.92, 32, 512)),
        ("vllm", ShortfallKind.ALLOCATION, EngineAdjustments(0.8, 32, 512)),
        ("sglang", ShortfallKind.KV_CACHE, EngineAdjustments(0.92, 1024, 2048)),
        ("sglang", ShortfallKind.ALLOCATION, EngineAdjustments(0.72, 1024, 2048)),
    ],
)
def test_a_fallback_plan_ends_at_the_floors(
    engine: str, kind: ShortfallKind, want: EngineAdjustments
) -> None:
    plan, initial = load_oom_fallback_plan().engines[engine], EngineAdjustments(0.92, 1024, 8192)
    last = list(plan.steps(kind, initial, lambda step: True))[-1]
    assert last == want


def test_every_engine_that_a_spec_can_name_has_a_plan() -> None:
    assert load_oom_fallback_plan().engines.keys() == ENGINE_FITS.keys()
