"""Corrections as people read and write them: what is written is read again, and an entry that
cannot be used is named with its field and harms no other."""

from dataclasses import replace
from datetime import date

import pytest
import yaml

from tonnage.fit.correction_entries import (
    MAX_ENTRIES,
    MAX_ENTRY_CHARS,
    entry_name,
    read_entries,
    write_entry,
)
from tonnage.fit.corrections import CorrectionKey, MemoryCorrection, Origin, ServedModel

SERVED = ServedModel("LlamaForCausalLM-80x8192-70.6B", "fp8", "auto", "0.32.0")
KEY = CorrectionKey(SERVED, "mi300x", tensor=2)
LEARNT = MemoryCorrection(KEY, 1_610_612_736, Origin.MEASUREMENT, "chat/llama", date(2026, 11, 22))
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


def test_an_entry_says_itself_what_it_speaks_of():
    assert write_entry(LEARNT) == WRITTEN


def test_what_is_written_is_read_again():
    assert read(any_name=write_entry(LEARNT)).corrections.entries == (LEARNT,)


def test_what_a_person_wrote_is_a_persons():
    key = CorrectionKey(SERVED, "mi300x")
    assert read(ours=BY_HAND).corrections.entries == (
        MemoryCorrection(key, 2 * 2**30, Origin.PERSON),
    )


def test_an_entry_may_be_the_mapping_itself():
    assert read(ours=yaml.safe_load(BY_HAND)).by_name == read(ours=BY_HAND).by_name


def test_a_lesson_goes_to_the_entry_of_its_key_whatever_its_name():
    found = read(renamed=WRITTEN)
    assert found.name_of(LEARNT) == "renamed"
    other = replace(LEARNT, key=CorrectionKey(SERVED, "h100-sxm-80gb", 4, 2))
    want = "chat.h100-sxm-80gb.tp4pp2.LlamaForCausalLM-80x8192-70.6B.fp8.kv-auto.v0.32.0"
    assert found.name_of(other) == entry_name(other) == want
    assert entry_name(replace(other, of=None)) == want.removeprefix("chat.")


def test_namespaces_have_entries_of_their_own_and_all_have_one():
    taught = [replace(LEARNT, of=of) for of in ("chat/llama", "search/llama", None)]
    found = read(**{entry_name(one): write_entry(one) for one in taught})
    assert set(found.corrections.entries) == set(taught)
    assert found.problems == {}


def test_a_lesson_takes_no_name_of_an_entry_that_was_made_to_count_everywhere():
    name = entry_name(LEARNT)
    for_all = write_entry(replace(LEARNT, of=None))
    found = read(**{name: for_all, f"{name}.2": for_all.replace("mi300x", "h100-sxm-80gb")})
    assert found.name_of(replace(LEARNT, of=None)) == name
    assert found.name_of(LEARNT) == f"{name}.3"


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        pytest.param(edited(extraBytes="lots"), "entry.extraBytes", id="no number"),
        pytest.param(edited(extraBytes=2**60), "entry.extraBytes", id="more than any device"),
        pytest.param(edited(extra=1), "entry.extra: is not a field", id="an unknown field"),
        pytest.param(edited(accelerator="mi300"), "mi300 is no accelerator", id="a misspelling"),
        pytest.param(edited(model=None), "entry.model: is required", id="no model"),
        pytest.param(edited(vllmVersion=0.32), "entry.vllmVersion", id="a version without quotes"),
        pytest.param(edited(tensorParallelSize=0), "entry.tensorParallelSize", id="no split"),
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
def test_what_cannot_be_used_is_named_and_harms_no_other(entry, want):
    found = read(bad=entry, good=WRITTEN)
    assert want in found.problems["bad"]
    assert found.corrections.entries == (LEARNT,)


def test_of_two_entries_that_speak_of_the_same_the_second_is_refused():
    found = read(a=WRITTEN, b=WRITTEN)
    assert list(found.by_name) == ["a"]
    assert found.problems == {"b": "speaks of the same as a: keep one of them"}


def test_no_map_is_endless():
    many = {
        f"entry-{number:04}": edited(tensorParallelSize=number)
        for number in range(1, MAX_ENTRIES + 2)
    }
    found = read(**many)
    assert len(found.by_name) == MAX_ENTRIES
    assert list(found.problems) == [f"entry-{MAX_ENTRIES + 1:04}"]
