"""Corrections from starts: each applies to its key only, is a term of the account, and makes the
next prediction equal the measurement."""

from dataclasses import replace
from datetime import date

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.calibration.corrections import (
    CorrectionKey,
    Corrections,
    KnownCorrections,
    MemoryCorrection,
    Origin,
    ServedModel,
    correction_key,
    served_model,
)
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.model import DoesNotFit, EngineOptions, MemoryFit, MemoryTerm, Parallelism
from tonnage.fit.questions.measured import measured_kv_bytes, missed_bytes
from tonnage.fit.questions.question import FitQuestion, answer

CATALOG = load_catalog()
GIB = 2**30
TODAY = date(2026, 11, 22)
OPTIONS = EngineOptions("v0.32.0", 32768)


def question(name="llama-3.1-8b", accelerator="h100-sxm-80gb", options=OPTIONS):
    card = CATALOG.accelerator(accelerator)
    return FitQuestion(
        Checkpoint(load_shape(name)),
        card,
        card.memory_bytes,
        Parallelism(),
        options,
        memory=VLLM_MEMORY,
    )


def key_of(fit_question):
    served = served_model(
        fit_question.checkpoint.shape,
        fit_question.options,
        CATALOG.release(fit_question.options.release).version,
    )
    return correction_key(served, fit_question.accelerator, fit_question.parallelism)


def corrected(fit_question, extra_bytes, origin=Origin.MEASUREMENT):
    correction = MemoryCorrection(key_of(fit_question), extra_bytes, origin)
    return replace(fit_question, corrections=Corrections((correction,)))


def fit(fit_question):
    verdict = answer(fit_question, CATALOG)
    assert isinstance(verdict, MemoryFit)
    return verdict


@pytest.mark.parametrize("really_missed", [5 * GIB, 2 * GIB + 12345, 1, 0, -1, -GIB])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-120b"])
@pytest.mark.parametrize("length", [8191, 32768])
def test_a_measured_correction_makes_the_next_prediction_equal_it(name, length, really_missed):
    fit_question = question(name, options=replace(OPTIONS, max_model_len=length))
    measured_tokens = fit(corrected(fit_question, really_missed)).account.kv_cache_tokens
    measured = measured_kv_bytes(measured_tokens, fit_question, CATALOG)
    missed = missed_bytes(fit(fit_question).account, measured)
    assert fit(corrected(fit_question, missed)).account.kv_cache_tokens == measured_tokens


def test_measuring_a_corrected_prediction_gives_the_same_correction():
    fit_question = question()
    once = missed_bytes(fit(fit_question).account, 30 * GIB)
    assert missed_bytes(fit(corrected(fit_question, 5 * GIB)).account, 30 * GIB) == once


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


def test_a_correction_that_does_not_fit_is_named():
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
        pytest.param(replace(question(), parallelism=Parallelism(2)), id="another parallelism"),
        pytest.param(question(options=replace(OPTIONS, release="v0.27.1")), id="another release"),
        pytest.param(question(options=replace(OPTIONS, kv_cache_dtype="fp8")), id="an FP8 cache"),
        pytest.param(question(options=replace(OPTIONS, quantization="fp8")), id="FP8 weights"),
    ],
)
def test_a_correction_applies_to_its_key_only(other):
    corrections = corrected(question(), 3 * GIB).corrections
    assert fit(replace(other, corrections=corrections)).account.correction_bytes == 0


def test_a_model_is_named_by_its_config():
    assert key_of(question("llama-3.3-70b", "mi300x")) == CorrectionKey(
        ServedModel("LlamaForCausalLM-80x8192-70.6B", "bfloat16", "auto", "0.32.0"), "mi300x"
    )


@pytest.mark.parametrize(
    "measured", [pytest.param(0, id="no cache"), pytest.param(80 * GIB, id="more than the device")]
)
def test_an_impossible_measurement_gives_no_correction(measured):
    assert missed_bytes(fit(question()).account, measured) is None


KEY = key_of(question())


def entry(gib, origin=Origin.MEASUREMENT, of="chat/llama"):
    return MemoryCorrection(KEY, int(gib * GIB), origin, of, TODAY)


@pytest.mark.parametrize(
    ("known", "new", "replaces"),
    [
        pytest.param(entry(3), entry(1), True, id="a new measurement of an object"),
        pytest.param(entry(3), entry(3), False, id="the same correction"),
        pytest.param(entry(3), entry(1, of="chat/b"), False, id="another object with fewer bytes"),
        pytest.param(entry(3), entry(4, of="chat/b"), True, id="another object with more bytes"),
        pytest.param(entry(3, Origin.FAILURE), entry(1), True, id="a measurement after a failure"),
        pytest.param(entry(3), entry(1, Origin.FAILURE), False, id="a failure with fewer bytes"),
        pytest.param(entry(1, Origin.PERSON, of=None), entry(9), False, id="a person's stays"),
    ],
)
def test_which_correction_replaces_a_known_one(known, new, replaces):
    assert Corrections((known,)).with_correction(new).find(KEY) == (new if replaces else known)


def test_objects_that_differ_do_not_replace_each_others_correction_for_ever():
    corrections = Corrections()
    for _ in range(3):
        corrections = corrections.with_correction(entry(3, of="chat/a")).with_correction(
            entry(1, of="chat/b")
        )
    assert corrections.entries == (entry(3, of="chat/a"),)


def store(*entries):
    return KnownCorrections(entries)


BY_PERSON = entry(2, Origin.PERSON, of=None)
GENERAL = entry(2, of=None)


@pytest.mark.parametrize(
    ("known", "new"),
    [
        pytest.param(entry(3), entry(1), id="a new measurement of an object"),
        pytest.param(entry(1, of="chat/b"), entry(3), id="another object, more bytes"),
        pytest.param(entry(9, of="search/b"), entry(1), id="another namespace"),
        pytest.param(GENERAL, entry(1), id="a general correction"),
    ],
)
def test_a_namespace_has_its_own_corrections(known, new):
    corrections = store(known).with_correction(new)
    assert corrections.counting_in("chat").entries == (new,)
    assert (known in corrections.entries) is (known.namespace != "chat")


@pytest.mark.parametrize(
    ("known", "new"),
    [
        pytest.param(entry(3), entry(3), id="the same correction"),
        pytest.param(entry(3), entry(1, of="chat/b"), id="another object, fewer bytes"),
        pytest.param(BY_PERSON, entry(9), id="a person's"),
        pytest.param(
            replace(BY_PERSON, of="chat/llama"), entry(9), id="a measurement that a person edited"
        ),
    ],
)
def test_a_known_correction_may_stay(known, new):
    assert store(known).with_correction(new) == store(known)


@pytest.mark.parametrize(
    ("known", "here", "elsewhere"),
    [
        pytest.param([entry(3)], entry(3), None, id="a measurement"),
        pytest.param([GENERAL], GENERAL, GENERAL, id="one without an object"),
        pytest.param([replace(GENERAL, of="")], replace(GENERAL, of=""), replace(GENERAL, of="")),
        pytest.param(
            [BY_PERSON, entry(9)], BY_PERSON, BY_PERSON, id="a person's before a measurement"
        ),
        pytest.param([entry(1), GENERAL], entry(1), GENERAL, id="measured here"),
        pytest.param(
            [entry(1, Origin.FAILURE), GENERAL], GENERAL, GENERAL, id="a failure is a lower bound"
        ),
        pytest.param(
            [entry(3, Origin.FAILURE), GENERAL],
            entry(3, Origin.FAILURE),
            GENERAL,
            id="a failure with more bytes",
        ),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_which_correction_applies_in_a_namespace(known, here, elsewhere, order):
    corrections = store(*known[::order])
    assert corrections.counting_in("chat").find(KEY) == here
    assert corrections.counting_in("search").find(KEY) == elsewhere


@pytest.mark.parametrize(
    ("known", "want"),
    [
        ([entry(1), entry(3, of="search/llama")], 3),
        ([entry(9), BY_PERSON], 2),
        ([BY_PERSON, entry(9)], 2),
    ],
)
def test_without_a_namespace_a_persons_or_the_largest_correction_applies(known, want):
    (correction,) = store(*known).most_careful().entries
    assert correction.extra_bytes == want * GIB


def test_corrections_of_other_models_are_left_out_of_a_question():
    other = replace(entry(1), key=key_of(question("gpt-oss-120b")))
    assert Corrections((other, entry(2))).of(KEY.served).entries == (entry(2),)
