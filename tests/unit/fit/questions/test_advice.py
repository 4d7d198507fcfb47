"""The smallest change that makes a model fit: the order of proposals, and that they fit."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.legality.compatibility import judge_compatibility
from tonnage.fit.model import DoesNotFit, EngineOptions, MemoryFit, Parallelism
from tonnage.fit.questions.advice import (
    MIN_CONTEXT,
    MIN_SEQUENCES,
    Change,
    Setting,
    Step,
    advise,
    apply,
)
from tonnage.fit.questions.limits import (
    concurrent_requests,
    judge_degrees,
    longest_context,
    safe_context,
    smallest_fit,
    with_context,
)
from tonnage.fit.questions.question import FitQuestion, answer

CATALOG = load_catalog()
GIB = 2**30
MIB = 2**20
EVERYTHING = frozenset(Setting)


def ask(name: str, accelerator: str, tensor: int = 1, **options: object) -> FitQuestion:
    device = CATALOG.accelerator(accelerator)
    assert device.memory_bytes is not None
    engine_options = replace(EngineOptions("0.32.0", 8192), **options)  # type: ignore[arg-type] # of a table
    return FitQuestion(
        Checkpoint(load_shape(name)),
        device,
        device.memory_bytes,
        Parallelism(tensor),
        engine_options,
        memory=VLLM_MEMORY,
    )


def fits(question: FitQuestion) -> bool:
    return isinstance(answer(question, CATALOG), MemoryFit)


def short_by(question: FitQuestion, lacking_bytes: int) -> FitQuestion:
    """The question on a device with `lacking_bytes` too little memory."""
    low, high = 0, question.device_bytes
    assert fits(question)
    while high - low > MIB:
        middle = (low + high) // 2
        smaller = replace(question, device_bytes=middle)
        low, high = (low, middle) if fits(smaller) else (middle, high)
    return replace(question, device_bytes=low - lacking_bytes)


def propose(
    question: FitQuestion, chosen: frozenset[Setting] = frozenset(), gpus: int = 8
) -> tuple[Change, ...]:
    return advise(question, chosen, (), gpus, CATALOG)


def settings(changes: tuple[Change, ...]) -> list[tuple[Setting, ...]]:
    return [tuple(step.setting for step in change.steps) for change in changes]


def test_fewer_sequences_are_as_many_as_fit() -> None:
    question = short_by(ask("llama-3.1-8b", "mi300x"), 64 * MIB)
    proposed = {change.steps[0].setting: change for change in propose(question)}
    change = proposed[Setting.SEQUENCES]
    fewer = change.question.options.max_num_seqs
    assert fewer is not None
    assert fewer >= MIN_SEQUENCES
    twice = answer(apply(question, Step(Setting.SEQUENCES, 2 * fewer)), CATALOG)
    assert not isinstance(twice, MemoryFit) or (twice.tight and not change.fit.tight)


def test_cheaper_changes_come_first_and_tight_ones_last() -> None:
    question = short_by(ask("llama-3.1-8b", "mi300x"), 64 * MIB)
    changes = propose(question, frozenset({Setting.CONTEXT}))
    order = list(Setting)
    ranks = [(change.fit.tight, order.index(change.steps[0].setting)) for change in changes[:-1]]
    assert len(ranks) > 1
    assert ranks == sorted(ranks)


def test_open_settings_come_before_chosen_ones() -> None:
    question = short_by(ask("llama-3.1-8b", "mi300x"), 64 * MIB)
    everything_else = frozenset(Setting) - {Setting.GRAPHS}
    assert settings(propose(question, everything_else))[0] == (Setting.GRAPHS,)
    assert settings(propose(question, frozenset({Setting.GRAPHS})))[-1] == (Setting.GRAPHS,)


def test_a_default_context_is_shortened_before_precision_is_lost() -> None:
    question = ask("llama-3.3-70b", "h100-sxm-80gb", 4, max_model_len=10_000_000)
    proposed = settings(propose(question))
    assert proposed[0] == (Setting.CONTEXT,)
    question = short_by(ask("llama-3.1-8b", "mi300x", max_model_len=65536), 2 * GIB)
    proposed = settings(propose(question))
    assert proposed.index((Setting.CONTEXT,)) < proposed.index((Setting.CACHE_DTYPE,))
    chosen = settings(propose(question, frozenset({Setting.CONTEXT})))
    assert chosen[-1] == (Setting.CONTEXT,)


def test_more_gpus_are_as_few_as_will_do() -> None:
    question = ask("llama-3.3-70b", "h100-sxm-80gb", 1)
    chosen = EVERYTHING - {Setting.SPLIT}
    first = propose(question, chosen)[0]
    parallelism = smallest_fit(judge_degrees(question, 8, CATALOG))
    assert parallelism is not None
    assert first.steps == (Step(Setting.SPLIT, parallelism.tensor),)


def test_an_illegal_tensor_parallel_size_is_replaced_by_a_legal_one() -> None:
    changes = propose(ask("llama-3.3-70b", "mi300x", 3), frozenset({Setting.SPLIT}))
    assert changes
    assert all(step.setting is Setting.SPLIT for change in changes for step in change.steps)


def test_a_forbidden_change_is_not_proposed_unless_it_is_allowed() -> None:
    question = short_by(ask("llama-3.1-8b", "mi210", max_model_len=65536), GIB)
    cache = (Setting.CACHE_DTYPE,)
    assert cache not in settings(advise(question, frozenset(), (), 1, CATALOG))
    changed = apply(question, Step(Setting.CACHE_DTYPE, "fp8"))
    refusals = judge_compatibility(
        question.checkpoint, question.accelerator, changed.options, (), CATALOG
    ).refusals
    allowed = advise(question, frozenset(), [one.rule for one in refusals], 1, CATALOG)
    assert cache in settings(allowed)


def test_several_changes_are_taken_together_when_no_single_one_helps() -> None:
    plain = ask("qwen2.5-72b-awq", "h100-sxm-80gb", max_model_len=32768)
    least = apply(apply(plain, Step(Setting.SEQUENCES, 16)), Step(Setting.CACHE_DTYPE, "fp8"))
    question = replace(plain, device_bytes=short_by(least, -16 * MIB).device_bytes)
    change = propose(question, frozenset({Setting.CONTEXT}), gpus=1)[0]
    assert len(change.steps) > 1
    assert fits(change.question)
    for needed in change.steps:
        without = question
        for step in change.steps:
            without = without if step == needed else apply(without, step)
        assert not fits(without), f"{needed.argument} is not needed"


def test_nothing_is_proposed_where_nothing_helps() -> None:
    assert propose(ask("deepseek-v3", "l4", 8)) == ()


def test_arguments_are_written_as_vllm_reads_them() -> None:
    assert Step(Setting.CACHE_DTYPE, "fp8").argument == "--kv-cache-dtype fp8"
    assert Step(Setting.GRAPHS, True).argument == "--enforce-eager"


# How far memory reaches


def test_one_token_more_than_the_longest_context_does_not_fit() -> None:
    question = ask("llama-3.3-70b", "mi300x", max_model_len=1_000_000)
    longest = longest_context(question, CATALOG)
    assert MIN_CONTEXT < longest < 1_000_000
    assert fits(with_context(question, longest))
    assert not fits(with_context(question, longest + 1))
    assert safe_context(question, CATALOG) <= longest


def test_the_longest_context_is_at_most_the_models_own() -> None:
    assert longest_context(ask("llama-3.1-8b", "mi300x"), CATALOG) == 131072


def test_no_context_fits_where_the_weights_do_not() -> None:
    assert longest_context(ask("llama-3.3-70b", "l4"), CATALOG) == 0


def test_requests_at_a_time_are_whole_and_more_when_shorter() -> None:
    question = ask("llama-3.3-70b", "mi300x", 2)
    verdict = answer(question, CATALOG)
    assert isinstance(verdict, MemoryFit)
    long = concurrent_requests(question, verdict.account, 8192, CATALOG)
    short = concurrent_requests(question, verdict.account, 1024, CATALOG)
    assert long == verdict.account.kv_cache_bytes // verdict.account.request_kv_bytes
    assert short >= 8 * long > 0


def test_only_sizes_that_the_node_and_vllm_allow_are_judged() -> None:
    question = ask("llama-3.3-70b", "h100-sxm-80gb")
    judged = dict(judge_degrees(question, 4, CATALOG))
    assert [split.tensor for split in judged] == [1, 2, 4]
    assert isinstance(judged[Parallelism(1)], DoesNotFit)
    assert isinstance(judged[Parallelism(4)], MemoryFit)


@pytest.mark.parametrize("stages", [1, 2])
def test_pipeline_stages_and_tensor_ranks_share_the_node(stages: int) -> None:
    question = replace(ask("llama-3.3-70b", "mi300x"), parallelism=Parallelism(1, stages))
    judged = judge_degrees(question, 8, CATALOG)
    assert max(split.gpus for split, _ in judged) == 8
    assert {split.pipeline for split, _ in judged} == {stages}


def test_a_lower_utilization_makes_graphs_fit_outside_the_budget() -> None:
    question = ask(
        "llama-3.3-70b", "h100-sxm-80gb", 4, release="0.12.0", gpu_memory_utilization=0.99
    )
    assert isinstance(answer(question, CATALOG), DoesNotFit)
    first = advise(question, EVERYTHING - {Setting.UTILIZATION}, (), 8, CATALOG)[0]
    assert [step.setting for step in first.steps] == [Setting.UTILIZATION]
    share = first.question.options.gpu_memory_utilization
    assert share is not None
    assert not fits(
        replace(question, options=replace(question.options, gpu_memory_utilization=share + 0.01))
    )


def test_a_utilization_that_is_low_enough_is_unchanged() -> None:
    question = ask("llama-3.3-70b", "h100-sxm-80gb", 2, max_model_len=65536)
    changes = advise(question, (), (), 8, CATALOG)
    assert changes
    assert Setting.UTILIZATION not in {step.setting for each in changes for step in each.steps}


def test_one_chosen_setting_is_changed_before_many_open_ones() -> None:
    question = ask("llama-3.3-70b", "h100-sxm-80gb", 1, max_model_len=131072)
    changes = advise(question, {Setting.SPLIT}, (), 8, CATALOG)
    assert [len(change.steps) for change in changes] == sorted(len(c.steps) for c in changes)
    assert changes[0].steps[0].setting is Setting.SPLIT
