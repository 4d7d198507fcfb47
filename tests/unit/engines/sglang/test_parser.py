"""A parser with SGLang's own arguments reads every rendered list as it was meant.

SGLang's own parser reads the same lists in tests/sglang/oracle (`make test-sglang`).
"""

from typing import Any

import pytest

from tests.support.engines.rendered_arguments import (
    combined_sglang_lists,
    flags_of,
    golden_lists,
)
from tests.support.engines.sglang_parser import RefusedError, read_by_sglang
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.catalog.sglang_arguments import (
    SglangArgumentError,
    load_sglang_arguments,
)
from tonnage.catalog.sglang_server import load_sglang_server

TABLE = load_sglang_arguments()
NEEDED = ["--model-path=m"]
REFUSED = {
    "an argument that there is not": ["--max-model-len=1"],
    "one that was split": ["--cuda-graph-max-bs=8"],
    "a size that is no number": ["--tp-size=two"],
    "a length that is none": ["--context-length=long"],
    "an element type that there is not": ["--kv-cache-dtype=fp8"],
    "a method that there is not": ["--quantization=experts_int8"],
    "a switch with a value": ["--enable-metrics=true"],
    "a share in words": ["--mem-fraction-static=most"],
    "no value": ["--mem-fraction-static"],
    "a value too many": ["--page-size", "1", "2"],
    "a configuration that is no JSON": ["--preferred-sampling-params={x"],
    "a policy that there is not": ["--schedule-policy", "best"],
}
TAKEN = {
    "several values": ["--cuda-graph-bs-decode", "1", "2"],
    "a negative number": ["--random-seed", "-1"],
    "one of several names": ["--tensor-parallel-size=2"],
    "a switch that is off": ["--no-dllm-fdfo"],
    "JSON": ['--preferred-sampling-params={"x": 1}'],
    "a choice of numbers": ["--log-requests-level", "2"],
    "a value or none": ["--model-checksum"],
}


@pytest.fixture(scope="module")
def rendered() -> list[list[str]]:
    return [*golden_lists("sglang"), *combined_sglang_lists()]


def test_every_rendered_list_is_read_as_it_was_meant(rendered: list[list[str]]) -> None:
    assert len(rendered) > 300
    for arguments in rendered:
        values = read_by_sglang(arguments)
        for flag, value in flags_of(["", *arguments]):
            assert means(values, flag, value), f"{flag} of {arguments}: {values}"


def means(values: dict[str, Any], flag: str, value: str | list[str] | None) -> bool:
    """Whether the parser took the value of the flag for that of the argument with its name."""
    read = values[TABLE.first_names[flag.removeprefix("--")]]
    if isinstance(value, list):
        (value,) = value
    return read is True if value is None else str(read) == value


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_the_parser_refuses_is_refused_before_a_pod_starts(mistake: str) -> None:
    with pytest.raises(RefusedError):
        read_by_sglang([*NEEDED, *REFUSED[mistake]])
    with pytest.raises(SglangArgumentError):
        list(TABLE.read(REFUSED[mistake]))


@pytest.mark.parametrize("form", TAKEN)
def test_what_the_parser_takes_is_taken(form: str) -> None:
    (given,) = TABLE.read(TAKEN[form])
    assert given.name in read_by_sglang([*NEEDED, *TAKEN[form]])


def test_the_operator_takes_no_name_that_the_parser_does_not_have() -> None:
    server = load_sglang_server()
    assert TABLE.version == server.version
    assert len(TABLE.first_names) > 500
    assert not server.of_vllm.keys() & TABLE.first_names.keys()
    dtypes = TABLE.arguments["kv-cache-dtype"].choices
    assert {*load_sglang_memory().cache_bytes} <= {*dtypes}
