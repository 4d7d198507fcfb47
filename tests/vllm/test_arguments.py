"""What Tonnage renders is read by the real argument parser of `vllm serve` as it was meant."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.programs.vllm_environment import PARSER, interpreter
from tests.support.engines.rendered_arguments import (
    combined_lists,
    flags_of,
    golden_lists,
    variables,
)
from tests.support.engines.vllm_arguments import Answer, read_arguments

RECORDED_HELP = Path(__file__).parents[1] / "data" / "vllm-serve-help.txt"
RENDERED = [*golden_lists(), *combined_lists()]
REFUSED = {
    "a flag that there is not": ["m", "--tensor-parallel-sizes=1"],
    "a value that is no number": ["m", "--tensor-parallel-size=two"],
    "a length that is none": ["m", "--max-model-len=long"],
    "an element type that there is not": ["m", "--kv-cache-dtype=int9"],
    "a switch with a value": ["m", "--enforce-eager=true"],
    "a share in words": ["m", "--gpu-memory-utilization=most"],
    "a configuration that is no JSON": ["m", "--compilation-config={cudagraph_mode"],
}


@pytest.fixture(scope="module")
def reading():
    return read_arguments(interpreter(PARSER), [*RENDERED, *REFUSED.values()])


def test_the_parser_equals_that_of_a_full_vllm(reading):
    """The stand-in for torch must not show anywhere: flags, kinds, choices, defaults, groups."""
    actual, want = (
        text.partition("positional arguments:")[2].splitlines()
        for text in (reading.help, RECORDED_HELP.read_text(encoding="utf-8"))
    )
    assert len(want) > 2000
    assert actual == want


def test_every_rendered_list_is_read_as_it_was_meant(reading):
    for arguments, answer in zip(RENDERED, reading.answers, strict=False):
        assert answer.refused is None, f"{arguments}: {answer.refused}"
        assert answer.values["model_tag"] == arguments[0]
        for flag, value in flags_of(arguments):
            assert means(answer, flag, value), f"{flag} of {arguments}: {answer.values}"


def test_every_variable_of_vllm_that_is_set_is_one_that_it_knows(reading):
    ours = {name for name in variables() if name.startswith("VLLM_")}
    assert len(ours) >= 4
    assert ours - reading.variables == set()


@pytest.mark.parametrize("mistake", REFUSED)
def test_an_invalid_argument_list_is_refused(reading, mistake):
    refusals: Sequence[Answer] = reading.answers[len(RENDERED) :]
    refused = dict(zip(REFUSED, refusals, strict=True))[mistake].refused
    (_, wrong) = REFUSED[mistake]
    assert refused is not None
    assert wrong.partition("=")[0] in refused


def means(answer, flag, value):
    """Whether the parser took the value of the flag for that of the setting with its name."""
    read = answer.values[flag.removeprefix("--").replace("-", "_")]
    if flag == "--compilation-config":
        return "FULL_DECODE_ONLY" in str(read)
    if flag == "--lora-modules":  # vLLM's own objects
        return all(
            all(f"{key}={text!r}" in module for key, text in json.loads(item).items())
            for item, module in zip(value, read, strict=True)
        )
    if isinstance(read, list):
        return read == (value if isinstance(value, list) else [value])
    return read is True if value is None else str(read) == value
