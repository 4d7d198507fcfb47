"""Properties of the advice: every proposed change fits, is necessary, and is new."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engines.shapes import CONFIGS, load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.context import context_limit
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.legality.compatibility import check_compatibility
from tonnage.fit.model import EngineOptions, IllegalParallelism, MemoryFit, Parallelism
from tonnage.fit.questions.advice import Setting, Step, advise, apply
from tonnage.fit.questions.limits import concurrent_requests, longest_context, with_context
from tonnage.fit.questions.question import FitQuestion, answer

CATALOG = load_catalog()
SHAPES = [load_shape(file.stem) for file in sorted(CONFIGS.glob("*.json"))]
DEVICES = [one for one in CATALOG.accelerators.values() if one.memory_bytes and one.supported]


@st.composite
def questions(draw: st.DrawFn) -> FitQuestion:
    device = draw(st.sampled_from(DEVICES))
    return FitQuestion(
        Checkpoint(draw(st.sampled_from(SHAPES))),
        device,
        draw(st.integers(8, 300)) * 2**30,
        Parallelism(draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.sampled_from([1, 1, 2]))),
        EngineOptions(
            draw(st.sampled_from(["0.11.0", "0.21.0", "0.32.0"])),
            draw(st.sampled_from([2048, 8192, 32768, 131072, 1_000_000])),
            max_num_seqs=draw(st.none() | st.integers(1, 2048)),
            max_num_batched_tokens=draw(st.none() | st.sampled_from([2048, 8192, 65536])),
            enforce_eager=draw(st.booleans()),
        ),
        draw(st.sampled_from([0, 100_000])),
        memory=VLLM_MEMORY,
    )


CHOSEN = st.frozensets(st.sampled_from(Setting))


def fits(question: FitQuestion) -> bool:
    return isinstance(answer(question, CATALOG), MemoryFit)


def after(question: FitQuestion, steps: tuple[Step, ...]) -> FitQuestion:
    for step in steps:
        question = apply(question, step)
    return question


@settings(max_examples=60, deadline=None)
@given(questions(), CHOSEN)
def test_every_advised_change_fits_and_is_allowed(
    question: FitQuestion, chosen: frozenset[Setting]
) -> None:
    for change in advise(question, chosen, (), 8, CATALOG):
        assert change.question == after(question, change.steps)
        assert answer(change.question, CATALOG) == change.fit
        forbidden = check_compatibility(
            question.checkpoint, question.accelerator, change.question.options, (), CATALOG
        )
        assert forbidden is None


@settings(max_examples=60, deadline=None)
@given(questions(), CHOSEN)
def test_no_step_of_a_change_is_unnecessary(
    question: FitQuestion, chosen: frozenset[Setting]
) -> None:
    if fits(question):
        return
    for change in advise(question, chosen, (), 8, CATALOG):
        for step in change.steps:
            rest = tuple(kept for kept in change.steps if kept != step)
            assert not fits(after(question, rest))


@settings(max_examples=60, deadline=None)
@given(questions(), CHOSEN)
def test_default_settings_are_changed_before_chosen_ones(
    question: FitQuestion, chosen: frozenset[Setting]
) -> None:
    changes = advise(question, chosen, (), 8, CATALOG)
    few = [change for change in changes if len(change.steps) <= 2]
    assert few == list(changes[: len(few)])
    touched = [any(step.setting in chosen for step in change.steps) for change in few]
    assert touched == sorted(touched)


@settings(max_examples=60, deadline=None)
@given(questions())
def test_the_longest_context_fits_and_holds_a_request(question: FitQuestion) -> None:
    longest = longest_context(question, CATALOG)
    if longest == 0:
        return
    alone = replace(with_context(question, longest), workload_tokens=0)
    verdict = answer(alone, CATALOG)
    assert isinstance(verdict, MemoryFit)
    assert concurrent_requests(alone, verdict.account, longest, CATALOG) >= 1
    shape, options = question.checkpoint.shape, question.options
    limit = context_limit(shape, options, CATALOG.release(options.release))
    assert longest <= (limit or max(shape.max_position_embeddings, options.max_model_len))
    if longest < (limit or options.max_model_len):
        assert not fits(with_context(alone, longest + 1))


@settings(max_examples=60, deadline=None)
@given(questions(), st.integers(1, 100_000))
def test_concurrent_requests_fill_the_cache(question: FitQuestion, tokens: int) -> None:
    verdict = answer(question, CATALOG)
    if isinstance(verdict, IllegalParallelism):
        return
    each = answer(with_context(question, tokens), CATALOG)
    assert not isinstance(each, IllegalParallelism)
    kv_bytes = max(0, verdict.account.kv_cache_bytes)
    held = concurrent_requests(question, verdict.account, tokens, CATALOG)
    assert (
        held * each.account.request_kv_bytes
        <= kv_bytes
        < (held + 1) * each.account.request_kv_bytes
    )
