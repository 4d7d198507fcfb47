"""How a replica is started again on the same devices after a start that died of memory."""

from dataclasses import replace
from typing import Final

import pytest

from tests.support.placing import CATALOG, LLAMA_8B, LLAMA_70B
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions, MemoryFit, Parallelism
from tonnage.fit.question import FitQuestion, answer
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    Knob,
    MemoryShortfall,
    ShortfallKind,
    Tried,
)
from tonnage.placement.ladder import load_ladder
from tonnage.placement.next_start import Start, next_start

GIB: Final = 2**30
MIB: Final = 2**20

ALLOCATION: Final = MemoryShortfall(ShortfallKind.ALLOCATION, 200 * MIB, 100 * MIB)
NO_KV_CACHE: Final = MemoryShortfall(ShortfallKind.KV_CACHE, None, None)


def ask(
    checkpoint: Checkpoint = LLAMA_8B, device: str = "h100-sxm-80gb", **options: object
) -> FitQuestion:
    """Whether one of them holds the model, with requests of 8k tokens."""
    accelerator = CATALOG.accelerator(device)
    assert accelerator.memory_bytes is not None
    asked = EngineOptions("v0.32.0", 8192, **options)  # type: ignore[arg-type]  # of a test's own
    return FitQuestion(checkpoint, accelerator, accelerator.memory_bytes, Parallelism(), asked)


def start_after(question: FitQuestion, *shortfalls: MemoryShortfall | None) -> Start | None:
    """What comes after starts that died one after the other of these."""
    tried: list[Tried] = []
    for shortfall in shortfalls:
        start = next_start(question, tried, None, CATALOG)
        assert start is not None, tried
        tried.append(of(question, start.adjustments, shortfall))
    return next_start(question, tried, None, CATALOG)


def of(
    question: FitQuestion, adjustments: EngineAdjustments, shortfall: MemoryShortfall | None
) -> Tried:
    device = question.accelerator.id, question.device_bytes
    return Tried(*device, question.parallelism, adjustments, shortfall)


def after(question: FitQuestion, *shortfalls: MemoryShortfall | None) -> EngineAdjustments | None:
    """The adjustments of the start after those that died."""
    start = start_after(question, *shortfalls)
    return start.adjustments if start else None


def test_the_first_start_is_as_vllm_is_by_itself() -> None:
    start = next_start(ask(), [], None, CATALOG)
    assert start == Start(UNADJUSTED, ask().options, answer(ask(), CATALOG))


def test_settings_take_turns_where_the_device_was_full() -> None:
    question = ask()
    want = [
        EngineAdjustments(max_num_batched_tokens=4096),
        EngineAdjustments(max_num_batched_tokens=4096, max_num_seqs=512),
        EngineAdjustments(0.88, 512, 4096),
        None,
    ]
    assert [after(question, *[ALLOCATION] * starts) for starts in (1, 2, 3, 4)] == want


def test_a_start_is_planned_with_the_settings_that_it_gets() -> None:
    start = start_after(ask(), ALLOCATION)
    assert start is not None
    assert start.options == replace(ask().options, max_num_batched_tokens=4096)
    assert start.verdict == answer(replace(ask(), options=start.options), CATALOG)


def test_what_frees_less_than_lacked_is_passed_over() -> None:
    lacked = MemoryShortfall(ShortfallKind.ALLOCATION, 3 * GIB, 0)
    assert after(ask(), lacked) == EngineAdjustments(0.88, 512, 4096)


def test_more_than_any_setting_frees_leaves_only_other_devices() -> None:
    lacked = MemoryShortfall(ShortfallKind.ALLOCATION, 40 * GIB, 0)
    assert after(ask(), lacked) is None


def test_a_share_of_the_device_follows_from_what_was_free() -> None:
    question = ask()
    free = int(question.device_bytes * 0.8567)
    lacked = MemoryShortfall(ShortfallKind.FREE_MEMORY, question.device_bytes, free)
    assert after(question, lacked) == EngineAdjustments(gpu_memory_utilization=0.85)


@pytest.mark.parametrize("free", [None, 0, 17 * GIB], ids=["not told", "none", "too little"])
def test_a_share_that_does_not_hold_the_model_is_not_tried(free: int | None) -> None:
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
    found = after(question, lacks)
    assert found is not None
    assert found.gpu_memory_utilization is None
    assert found.max_num_batched_tokens is not None


def test_a_fit_is_told_by_how_much_the_kv_cache_was_smaller_than_counted_on() -> None:
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


def test_where_nothing_was_left_for_the_kv_cache_all_that_was_counted_on_lacked() -> None:
    start = start_after(ask(LLAMA_70B, "mi300x"), NO_KV_CACHE)
    assert start is not None
    assert start.adjustments == EngineAdjustments(max_num_seqs=512, max_num_batched_tokens=4096)
    assert isinstance(start.verdict, MemoryFit)
    assert start.verdict.account.kv_cache_bytes < 4 * GIB


def test_words_without_a_meaning_leave_only_other_devices() -> None:
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
def test_what_the_user_wrote_is_not_touched(
    fixed: dict[str, float], want: EngineAdjustments | None
) -> None:
    assert after(ask(**fixed), ALLOCATION) == want


def test_a_batch_is_never_smaller_than_its_sequences() -> None:
    """vLLM refuses max_num_batched_tokens below max_num_seqs."""
    question = ask(max_num_seqs=8192, max_num_batched_tokens=None)
    found = after(question, ALLOCATION)
    assert found == EngineAdjustments(gpu_memory_utilization=0.88)


def test_prompts_that_are_not_cut_keep_their_batch() -> None:
    question = ask(enable_chunked_prefill=False)
    assert after(question, ALLOCATION) == EngineAdjustments(max_num_seqs=512)


def test_replicas_keep_what_they_run_with() -> None:
    now = EngineAdjustments(max_num_seqs=256)
    start = next_start(ask(), [], now, CATALOG)
    assert start is not None
    assert start.adjustments == now
    tried = [of(ask(), UNADJUSTED, ALLOCATION)]
    kept = next_start(ask(), tried, now, CATALOG)
    assert kept is not None
    assert kept.adjustments == now


def test_replicas_that_died_do_not_keep_what_they_ran_with() -> None:
    now = EngineAdjustments(max_num_seqs=256)
    start = next_start(ask(), [of(ask(), now, ALLOCATION)], now, CATALOG)
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
def test_what_died_elsewhere_says_nothing_here(other: dict[str, object]) -> None:
    tried = replace(of(ask(), UNADJUSTED, ALLOCATION), **other)  # type: ignore[arg-type]  # as above
    start = next_start(ask(), [tried], None, CATALOG)
    assert start is not None
    assert start.adjustments == UNADJUSTED


def test_an_object_is_given_up_after_so_many_starts() -> None:
    elsewhere = replace(of(ask(), UNADJUSTED, None), parallelism=Parallelism(8))
    starts = load_ladder().starts
    assert next_start(ask(), [elsewhere] * (starts - 1), None, CATALOG) is not None
    assert next_start(ask(), [elsewhere] * starts, None, CATALOG) is None


def test_splits_after_the_first_one_are_given_up_sooner() -> None:
    first = replace(of(ask(), UNADJUSTED, ALLOCATION), parallelism=Parallelism(2))
    tried = [first, of(ask(), UNADJUSTED, ALLOCATION)]
    start = next_start(ask(), tried, None, CATALOG)
    assert start is not None
    assert (
        next_start(ask(), [*tried, of(ask(), start.adjustments, ALLOCATION)], None, CATALOG) is None
    )


def test_a_start_that_died_does_not_come_again_in_whatever_order_they_died() -> None:
    shorter = EngineAdjustments(max_num_batched_tokens=4096)
    tried = [of(ask(), shorter, ALLOCATION), of(ask(), UNADJUSTED, ALLOCATION)]
    start = next_start(ask(), tried, None, CATALOG)
    assert start is not None
    assert start.adjustments == replace(shorter, max_num_seqs=512)


@pytest.mark.parametrize("kind", ShortfallKind)
def test_a_ladder_ends_at_the_floors(kind: ShortfallKind) -> None:
    ladder, top = load_ladder(), EngineAdjustments(0.92, 1024, 8192)
    last = list(ladder.rungs(kind, top, lambda rung: True))[-1]
    floors = {
        Knob.GPU_MEMORY_UTILIZATION: ladder.gpu_memory_utilization.floor,
        Knob.MAX_NUM_SEQS: ladder.max_num_seqs.floor,
        Knob.MAX_NUM_BATCHED_TOKENS: ladder.max_num_batched_tokens.floor,
    }
    moved = {knob: floor for knob, floor in floors.items() if knob in ladder.turns[kind]}
    assert last.values == top.values | moved
