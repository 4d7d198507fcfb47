"""Corrections as text: written entries read back, and a problem names the field of an invalid
entry, which does not affect the others."""

from dataclasses import replace
from datetime import date

import pytest
import yaml

from tonnage.fit.calibration.corrections import (
    ENGINES,
    CorrectionKey,
    MemoryCorrection,
    Origin,
    ServedModel,
)
from tonnage.fit.calibration.entries import (
    MAX_ENTRIES,
    MAX_ENTRY_CHARS,
    entry_name,
    read_entries,
    write_entry,
)
from tonnage.fit.engines.registry import ENGINE_FITS

SERVED = ServedModel("LlamaForCausalLM-80x8192-70.6B", "fp8", "auto", "0.32.0")
KEY = CorrectionKey(SERVED, "mi300x", tensor=2)
MEASURED = MemoryCorrection(
    KEY, 1_610_612_736, Origin.MEASUREMENT, "chat/llama", date(2026, 11, 22)
)
WRITTEN = """\
model: LlamaForCausalLM-80x8192-70.6B
weights: fp8
kvCache: auto
vllmVersion: 0.32.0
accelerator: mi300x
tensorParallelSize: 2
pipelineParallelSize: 1
extraBytes: 1610612736
origin: Measurement
learntOf: chat/llama
learntOn: '2026-11-22'
"""
BY_HAND = """\
# the driver of these hosts keeps 2 GiB for itself
model: LlamaForCausalLM-80x8192-70.6B
weights: fp8
kvCache: auto
vllmVersion: v0.32.0
accelerator: mi300x
extraBytes: 2147483648
"""


def read(**data):
    return read_entries(data, {"mi300x", "h100-sxm-80gb"})


def edited(**fields):
    return yaml.safe_dump({**yaml.safe_load(BY_HAND), **fields})


def test_an_entry_names_its_subject():
    assert write_entry(MEASURED) == WRITTEN


def test_a_written_entry_reads_back():
    assert read(any_name=write_entry(MEASURED)).corrections.entries == (MEASURED,)


def test_an_entry_without_origin_is_by_a_person():
    key = CorrectionKey(SERVED, "mi300x")
    assert read(any_name=BY_HAND).corrections.entries == (
        MemoryCorrection(key, 2 * 2**30, Origin.PERSON),
    )


def test_an_entry_may_be_the_mapping_itself():
    assert read(any_name=yaml.safe_load(BY_HAND)).by_name == read(any_name=BY_HAND).by_name


def test_a_correction_goes_to_the_entry_of_its_key_whatever_its_name():
    entries = read(renamed=WRITTEN)
    assert entries.name_of(MEASURED) == "renamed"
    other = replace(MEASURED, key=CorrectionKey(SERVED, "h100-sxm-80gb", 4, 2))
    want = "chat.h100-sxm-80gb.tp4pp2.LlamaForCausalLM-80x8192-70.6B.fp8.kv-auto.v0.32.0"
    assert entries.name_of(other) == entry_name(other) == want
    assert entry_name(replace(other, of=None)) == want.removeprefix("chat.")


def test_data_parallel_ranks_are_part_of_the_key():
    shared = replace(MEASURED, key=replace(MEASURED.key, tensor=1, data=8))
    entries = read(**{entry_name(each): write_entry(each) for each in (MEASURED, shared)})
    assert set(entries.corrections.entries) == {MEASURED, shared}
    assert entries.problems == {}


def test_namespaces_have_entries_of_their_own_and_all_have_one():
    corrections = [replace(MEASURED, of=of) for of in ("chat/llama", "search/llama", None)]
    entries = read(
        **{entry_name(correction): write_entry(correction) for correction in corrections}
    )
    assert set(entries.corrections.entries) == set(corrections)
    assert entries.problems == {}


def test_a_correction_takes_no_name_of_an_entry_made_general():
    name = entry_name(MEASURED)
    general = write_entry(replace(MEASURED, of=None))
    entries = read(**{name: general, f"{name}.2": general.replace("mi300x", "h100-sxm-80gb")})
    assert entries.name_of(replace(MEASURED, of=None)) == name
    assert entries.name_of(MEASURED) == f"{name}.3"


def test_every_engine_that_a_spec_can_name_has_entries():
    assert {*ENGINES} == {*ENGINE_FITS}


def test_entries_of_another_engine_name_it_and_its_release():
    other = replace(
        MEASURED, key=replace(KEY, served=replace(SERVED, engine="sglang", version="0.5.23"))
    )
    entries = read(**{entry_name(each): write_entry(each) for each in (MEASURED, other)})
    assert set(entries.corrections.entries) == {MEASURED, other}
    assert entry_name(other).endswith(".kv-auto.sglang.v0.5.23")


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        pytest.param(edited(extraBytes="lots"), "entry.extraBytes", id="no number"),
        pytest.param(edited(extraBytes=2**60), "entry.extraBytes", id="more than any device"),
        pytest.param(edited(extra=1), "entry.extra: is not a field", id="an unknown field"),
        pytest.param(edited(accelerator="mi300"), "mi300 is no accelerator", id="a misspelling"),
        pytest.param(edited(model=None), "entry.model: is required", id="no model"),
        pytest.param(edited(vllmVersion=0.32), "entry.vllmVersion", id="a version without quotes"),
        pytest.param(edited(vllmVersion=None), "entry.vllmVersion: expected", id="no release"),
        pytest.param(edited(engineVersion="1"), "use vllmVersion for vllm", id="two releases"),
        pytest.param(edited(engine="sglang"), "entry.engineVersion: expected", id="no own release"),
        pytest.param(
            edited(engine="sglang", engineVersion="0.5.23"),
            "use engineVersion for sglang",
            id="a release of vLLM for SGLang",
        ),
        pytest.param(
            edited(engine="tgi"), "tgi is no engine; expected vllm, sglang", id="no engine"
        ),
        pytest.param(edited(tensorParallelSize=0), "entry.tensorParallelSize", id="no parallelism"),
        pytest.param(edited(learntOn="yesterday"), "entry.learntOn", id="no day"),
        pytest.param("model: [", "entry: is not YAML", id="no YAML"),
        pytest.param("a: &a [*a]", "entry", id="a list of itself"),
        pytest.param("[" * MAX_ENTRY_CHARS, "entry: is not YAML", id="as deep as it is long"),
        pytest.param("x" * (MAX_ENTRY_CHARS + 1), "2,049 characters, at most 2,048", id="too long"),
        pytest.param("just words", "entry", id="words"),
        pytest.param("", "entry", id="nothing"),
        pytest.param("!!python/object:os.system {}", "entry: is not YAML", id="a tag"),
        pytest.param(7, "entry", id="a number"),
    ],
)
def test_an_invalid_entry_is_reported_and_does_not_affect_others(entry, want):
    entries = read(bad=entry, good=WRITTEN)
    assert want in entries.problems["bad"]
    assert entries.corrections.entries == (MEASURED,)


def test_the_second_entry_of_a_subject_is_refused():
    entries = read(a=WRITTEN, b=WRITTEN)
    assert list(entries.by_name) == ["a"]
    assert entries.problems == {"b": "has the same subject as a: keep one of them"}


def test_the_number_of_entries_is_limited():
    many = {
        f"entry-{number:04}": edited(tensorParallelSize=number)
        for number in range(1, MAX_ENTRIES + 2)
    }
    entries = read(**many)
    assert len(entries.by_name) == MAX_ENTRIES
    assert list(entries.problems) == [f"entry-{MAX_ENTRIES + 1:04}"]
