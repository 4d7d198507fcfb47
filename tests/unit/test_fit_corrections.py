"""What starts have taught: found for just what it was learnt of, added to the account, and so that
the next prediction is what was measured."""

from dataclasses import replace
from datetime import date

import pytest

from tests.support.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.corrections import (
    CorrectionKey,
    Corrections,
    LearntCorrections,
    MemoryCorrection,
    Origin,
    ServedModel,
    correction_key,
    served_model,
)
from tonnage.fit.measured import measured_kv_bytes, missed_bytes
from tonnage.fit.model import DoesNotFit, EngineOptions, MemoryFit, MemoryTerm, Parallelism
from tonnage.fit.question import FitQuestion, answer

CATALOG = load_catalog()
GIB = 2**30
TODAY = date(2026, 11, 22)
OPTIONS = EngineOptions("v0.32.0", 32768)


def question(name="llama-3.1-8b", accelerator="h100-sxm-80gb", options=OPTIONS):
    card = CATALOG.accelerator(accelerator)
    return FitQuestion(
        Checkpoint(load_shape(name)), card, card.memory_bytes, Parallelism(), options
    )


def key_of(asked):
    release = CATALOG.release(asked.options.vllm_version)
    served = served_model(asked.checkpoint.shape, asked.options, release)
    return correction_key(served, asked.accelerator, asked.parallelism)


def corrected(asked, extra_bytes, origin=Origin.MEASUREMENT):
    correction = MemoryCorrection(key_of(asked), extra_bytes, origin)
    return replace(asked, corrections=Corrections((correction,)))


def fit(asked):
    verdict = answer(asked, CATALOG)
    assert isinstance(verdict, MemoryFit)
    return verdict


@pytest.mark.parametrize("really_missed", [5 * GIB, 2 * GIB + 12345, 1, 0, -1, -GIB])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-120b"])
@pytest.mark.parametrize("length", [8191, 32768])
def test_a_correction_learnt_from_a_measurement_makes_the_next_prediction_equal_it(
    name, length, really_missed
):
    asked = question(name, options=replace(OPTIONS, max_model_len=length))
    measured_tokens = fit(corrected(asked, really_missed)).account.kv_cache_tokens
    measured = measured_kv_bytes(measured_tokens, asked, CATALOG)
    missed = missed_bytes(fit(asked).account, measured)
    assert fit(corrected(asked, missed)).account.kv_cache_tokens == measured_tokens


def test_learning_from_a_corrected_prediction_comes_to_the_same_correction():
    asked = question()
    once = missed_bytes(fit(asked).account, 30 * GIB)
    assert missed_bytes(fit(corrected(asked, 5 * GIB)).account, 30 * GIB) == once


def test_a_correction_is_a_term_of_the_account():
    plain, account = fit(question()).account, fit(corrected(question(), 3 * GIB)).account
    assert account.correction_bytes == 3 * GIB
    assert account.kv_cache_bytes == plain.kv_cache_bytes - 3 * GIB
    assert account.budget_bytes == (
        account.weights_bytes
        + account.activation_bytes
        + account.non_torch_bytes
        + account.graph_bytes
        + account.correction_bytes
        + account.kv_cache_bytes
    )


def test_a_correction_that_finds_no_room_is_named():
    verdict = answer(corrected(question(), 79 * GIB), CATALOG)
    assert isinstance(verdict, DoesNotFit)
    assert verdict.term is MemoryTerm.CORRECTION
    assert verdict.needed_bytes == 79 * GIB


def test_a_measurement_leaves_less_uncertain_and_a_failure_does_not():
    plain = fit(question()).account.band_bytes
    assert fit(corrected(question(), GIB)).account.band_bytes < plain
    assert fit(corrected(question(), GIB, Origin.FAILURE)).account.band_bytes == plain


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(question("gpt-oss-120b"), id="another model"),
        pytest.param(question(accelerator="mi300x"), id="another accelerator"),
        pytest.param(replace(question(), parallelism=Parallelism(2)), id="another split"),
        pytest.param(
            question(options=replace(OPTIONS, vllm_version="v0.27.1")), id="another release"
        ),
        pytest.param(question(options=replace(OPTIONS, kv_cache_dtype="fp8")), id="an FP8 cache"),
        pytest.param(question(options=replace(OPTIONS, quantization="fp8")), id="FP8 weights"),
    ],
)
def test_a_correction_speaks_of_nothing_else(other):
    learnt = corrected(question(), 3 * GIB).corrections
    assert fit(replace(other, corrections=learnt)).account.correction_bytes == 0


def test_a_model_is_named_by_its_config():
    assert key_of(question("llama-3.3-70b", "mi300x")) == CorrectionKey(
        ServedModel("LlamaForCausalLM-80x8192-70.6B", "bfloat16", "auto", "0.32.0"), "mi300x"
    )


@pytest.mark.parametrize(
    "measured", [pytest.param(0, id="no cache"), pytest.param(80 * GIB, id="more than the device")]
)
def test_from_what_cannot_be_nothing_is_learnt(measured):
    assert missed_bytes(fit(question()).account, measured) is None


KEY = key_of(question())


def lesson(gib, origin=Origin.MEASUREMENT, of="chat/llama"):
    return MemoryCorrection(KEY, int(gib * GIB), origin, of, TODAY)


@pytest.mark.parametrize(
    ("known", "new", "is_learnt"),
    [
        pytest.param(lesson(3), lesson(1), True, id="an object corrects itself"),
        pytest.param(lesson(3), lesson(3), False, id="the same again is nothing new"),
        pytest.param(lesson(3), lesson(1, of="chat/b"), False, id="another one takes less"),
        pytest.param(lesson(3), lesson(4, of="chat/b"), True, id="another one takes more"),
        pytest.param(
            lesson(3, Origin.FAILURE), lesson(1), True, id="a measurement after a failure"
        ),
        pytest.param(
            lesson(3), lesson(1, Origin.FAILURE), False, id="a failure for less than is known"
        ),
        pytest.param(
            lesson(1, Origin.PERSON, of=None), lesson(9), False, id="what a person wrote stays"
        ),
    ],
)
def test_a_lesson_takes_the_place_of_what_was_known(known, new, is_learnt):
    assert Corrections((known,)).learn(new).find(KEY) == (new if is_learnt else known)


def test_two_objects_that_differ_do_not_correct_each_other_for_ever():
    learnt = Corrections()
    for _ in range(3):
        learnt = learnt.learn(lesson(3, of="chat/a")).learn(lesson(1, of="chat/b"))
    assert learnt.entries == (lesson(3, of="chat/a"),)


def lessons(*entries):
    return LearntCorrections(entries)


PERSONS = lesson(2, Origin.PERSON, of=None)
OF_ALL = lesson(2, of=None)


@pytest.mark.parametrize(
    ("known", "new"),
    [
        pytest.param(lesson(3), lesson(1), id="an object corrects itself"),
        pytest.param(lesson(1, of="chat/b"), lesson(3), id="another of the namespace takes more"),
        pytest.param(lesson(9, of="search/b"), lesson(1), id="another namespace"),
        pytest.param(OF_ALL, lesson(1), id="one that counts everywhere"),
    ],
)
def test_a_namespace_learns_for_itself(known, new):
    learnt = lessons(known).learn(new)
    assert learnt.counting_in("chat").entries == (new,)
    assert (known in learnt.entries) is (known.namespace != "chat")


@pytest.mark.parametrize(
    ("known", "new"),
    [
        pytest.param(lesson(3), lesson(3), id="the same again"),
        pytest.param(lesson(3), lesson(1, of="chat/b"), id="another of the namespace takes less"),
        pytest.param(PERSONS, lesson(9), id="a person's"),
        pytest.param(replace(PERSONS, of="chat/llama"), lesson(9), id="a lesson that a person set"),
    ],
)
def test_what_is_known_may_stay(known, new):
    assert lessons(known).learn(new) == lessons(known)


@pytest.mark.parametrize(
    ("known", "here", "elsewhere"),
    [
        pytest.param([lesson(3)], lesson(3), None, id="a lesson"),
        pytest.param([OF_ALL], OF_ALL, OF_ALL, id="one whose teacher was taken away"),
        pytest.param([replace(OF_ALL, of="")], replace(OF_ALL, of=""), replace(OF_ALL, of="")),
        pytest.param([PERSONS, lesson(9)], PERSONS, PERSONS, id="a person's stays before a lesson"),
        pytest.param([lesson(1), OF_ALL], lesson(1), OF_ALL, id="measured here"),
        pytest.param(
            [lesson(1, Origin.FAILURE), OF_ALL], OF_ALL, OF_ALL, id="a failure is a lower bound"
        ),
        pytest.param(
            [lesson(3, Origin.FAILURE), OF_ALL],
            lesson(3, Origin.FAILURE),
            OF_ALL,
            id="a failure that lacked more",
        ),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_what_counts_where(known, here, elsewhere, order):
    learnt = lessons(*known[::order])
    assert learnt.counting_in("chat").find(KEY) == here
    assert learnt.counting_in("search").find(KEY) == elsewhere


@pytest.mark.parametrize(
    ("known", "want"),
    [
        ([lesson(1), lesson(3, of="search/llama")], 3),
        ([lesson(9), PERSONS], 2),
        ([PERSONS, lesson(9)], 2),
    ],
)
def test_without_a_namespace_the_most_careful_counts_and_before_it_a_persons(known, want):
    (found,) = lessons(*known).most_careful().entries
    assert found.extra_bytes == want * GIB


def test_what_was_learnt_of_other_models_is_left_out_of_a_question():
    other = replace(lesson(1), key=key_of(question("gpt-oss-120b")))
    shape = question().checkpoint.shape
    release = CATALOG.release("v0.32.0")
    assert Corrections((other, lesson(2))).of(shape, OPTIONS, release).entries == (lesson(2),)
