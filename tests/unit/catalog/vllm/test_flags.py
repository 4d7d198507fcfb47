"""The table of vLLM's flags: what stands in it, and how arguments are read by it."""

import argparse

import pytest

from tests.support.engines.rendered_arguments import combined_lists, flags_of, rule_settings
from tests.support.engines.vllm_help import FLAGS
from tonnage.catalog.vllm.flags import COUNTED, engine_flags
from tonnage.cli.fit.vllm.flags import add_engine_arguments
from tonnage.fit.flag_values import READERS
from tonnage.fit.model import EngineOptions

TABLE = engine_flags()
GONE = {
    "--num-redundant-experts",
    "--num-speculative-tokens",
    "--rope-scaling",
    "--speculative-model",
}
"""Flags of older releases."""

OF_FIT_ALONE = {"--speculative-tokens", "-O"}
"""What `tonnage fit` takes, and vLLM not as a flag of its own."""

OPTIONS_OF_RULES = {"cuda_loader"}
"""Options that change no memory."""


def test_flags_are_those_of_the_help() -> None:
    assert set(TABLE.flags) - set(FLAGS) == GONE


def test_a_flag_is_listed_with_its_short_form() -> None:
    for name, flag in TABLE.flags.items():
        if name not in GONE:
            shorts = [other for other in FLAGS[name].names if not other.startswith("--")]
            assert ([flag.short] if flag.short else []) == shorts, name


def test_no_flag_of_the_help_is_taken_for_another() -> None:
    for name, flag in FLAGS.items():
        assert TABLE.name_of(name) in (None, *flag.names), name


def test_flags_that_the_operator_renders_are_refused_from_users() -> None:
    rendered = {flag for arguments in combined_lists() for flag, _ in flags_of(arguments)}
    refused = {name for name, flag in TABLE.flags.items() if flag.instead or flag.with_lora}
    free = rendered - refused
    # Of what compatibility rules set, the user's value wins.
    assert free == {
        flag for settings in rule_settings() for flag, _ in flags_of(["m", *settings.args])
    }


def test_options_that_a_flag_sets_are_options_of_the_calculation() -> None:
    options = EngineOptions("v0.32.0", 1)
    for name, flag in TABLE.flags.items():
        for settings in flag.sets.values():
            assert all(isinstance(getattr(options, option), bool | None) for option in settings)
            is_for_rules = settings.keys() <= OPTIONS_OF_RULES
            assert (flag.memory == COUNTED) is not is_for_rules, name


def test_values_of_flags_have_readers_and_options() -> None:
    options = EngineOptions("v0.32.0", 1)
    for name, flag in TABLE.flags.items():
        assert (flag.option is None) == (flag.value is None), name
        if flag.option is not None and flag.value is not None:
            assert hasattr(options, flag.option), name
            assert flag.value in READERS, name
            assert flag.memory == COUNTED, name
        assert flag.otherwise is None or flag.option is not None, name
        assert not flag.no_more or flag.memory not in (None, COUNTED), name


def test_every_counted_flag_is_set_by_a_field_or_read() -> None:
    for name, flag in TABLE.flags.items():
        if flag.memory == COUNTED:
            assert flag.instead or flag.sets or flag.option, name


@pytest.mark.parametrize("text", ["--enable-lor", "--dty=half", "--speculative-con={}"])
def test_an_abbreviation_is_refused(text: str) -> None:
    (given,) = TABLE.read([text])
    assert given.refusal is not None
    assert given.refusal.startswith("write it in full")


@pytest.mark.parametrize(
    "text", ["--enable-lora", "--enable_lora", "-ep", "-cc.mode=3", "--compilation-config.mode=3"]
)
def test_another_way_to_write_a_flag_is_no_abbreviation(text: str) -> None:
    (given,) = TABLE.read([text])
    assert given.refusal is None


def test_fit_takes_every_flag_that_the_calculation_follows() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_engine_arguments(parser)
    taken = set(parser._option_string_actions) - OF_FIT_ALONE
    counted = {name: flag for name, flag in TABLE.flags.items() if flag.memory == COUNTED}
    assert {TABLE.name_of(name) for name in taken} == set(counted)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        pytest.param("--max-model-len=8", "--max-model-len", "8", id="with its value"),
        pytest.param("--max_model_len=a_b", "--max-model-len", "a_b", id="underscores"),
        pytest.param("--max-model-l=8", "--max-model-len", "8", id="abbreviated"),
        pytest.param("--compilation-config.mode=3", "--compilation-config", "3", id="a JSON key"),
        pytest.param("-tp=8", "--tensor-parallel-size", "8", id="short"),
        pytest.param("-t=8", "--tensor-parallel-size", "8", id="short and abbreviated"),
        pytest.param("-qfp8_x", "--quantization", "fp8_x", id="value behind one letter"),
        pytest.param("-n2", "--nnodes", "2", id="number behind one letter"),
    ],
)
def test_a_flag_is_known_however_it_is_written(text: str, name: str, value: str) -> None:
    (given,) = TABLE.read(["--seed=1", text])
    assert (given.index, given.text, given.name, given.value) == (1, text, name, value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seed", "-1"],
        ["--max-model-len-of-something-else"],
        ["--generation-config={}"],
        ["-O3"],
        ["max-model-len"],
        ["--"],
        ["-"],
        [""],
    ],
)
def test_other_arguments_are_no_flags_of_the_table(arguments: list[str]) -> None:
    assert list(TABLE.read(arguments)) == []


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--mm-encoder-tp-mode", "data"], "data"),
        (["--mm-encoder-tp-mode", "--seed"], ""),
        (["--enable-expert-parallel", "m"], ""),
        (["--performance-mode"], ""),
    ],
)
def test_a_value_may_be_the_next_argument(arguments: list[str], value: str) -> None:
    given = next(TABLE.read(arguments))
    assert given.value == value
