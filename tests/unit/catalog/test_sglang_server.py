"""SGLang's arguments are read as its parser reads them."""

import pytest

from tonnage.catalog.model import Vendor
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.catalog.sglang_arguments import SglangArgumentError, load_sglang_arguments
from tonnage.catalog.sglang_server import load_sglang_server

SERVER = load_sglang_server()
ARGUMENTS = load_sglang_arguments()


def test_arguments_are_read_with_their_values_in_both_forms() -> None:
    given = ["--log-requests", "--page-size=16", "--random-seed", "-1", "--numa-node", "0", "1"]
    read = [(one.index, one.name, one.values) for one in ARGUMENTS.read(given)]
    assert read == [
        (0, "log-requests", ()),
        (1, "page-size", ("16",)),
        (2, "random-seed", ("-1",)),
        (4, "numa-node", ("0", "1")),
    ]


@pytest.mark.parametrize(
    ("given", "index", "want"),
    [
        pytest.param(["--page-size", "1", "2"], 2, "begins with --", id="a value too many"),
        pytest.param(["--log-requests=1"], 0, "takes no value", id="a switch with a value"),
        pytest.param(["--page-size", "--log-requests"], 0, "expected a value", id="no value"),
        pytest.param(["--page-siz=1"], 0, "no such argument", id="an abbreviation"),
        pytest.param(["--page_size=1"], 0, "no such argument", id="an underscore"),
        pytest.param(["--page-size=a"], 0, "expected an integer", id="a word for a number"),
        pytest.param(
            ["--log-requests", "--max-total-tokens", "1.5Ki"],
            1,
            "such as 16384 or 16k",
            id="a part of a binary unit",
        ),
        pytest.param(
            ["--schedule-policy=best"], 0, "expected one of dfs-weight, fcfs", id="no choice"
        ),
        pytest.param(
            ["--preferred-sampling-params=" + "[" * 100_000], 0, "expected JSON", id="deep JSON"
        ),
        pytest.param(["-h"], 0, "begins with --", id="a short one"),
        pytest.param([""], 0, "begins with --", id="nothing"),
    ],
)
def test_what_the_parser_refuses_is_refused_at_its_item(
    given: list[str], index: int, want: str
) -> None:
    with pytest.raises(SglangArgumentError, match=want) as error:
        list(ARGUMENTS.read(given))
    assert error.value.index == index


def test_tokens_may_have_a_unit_and_names_are_the_first_ones() -> None:
    given = ["--max-total-tokens", "1.5k", "--max-prefill-tokens=16Ki", "--model", "x"]
    read = [(one.name, one.values) for one in ARGUMENTS.read(given)]
    assert read == [
        ("max-total-tokens", ("1.5k",)),
        ("max-prefill-tokens", ("16Ki",)),
        ("model-path", ("x",)),
    ]


def test_memory_arguments_and_images_are_of_one_release() -> None:
    assert SERVER.version == load_sglang_memory().version


def test_every_architecture_with_a_calculation_has_an_image() -> None:
    for arch in load_sglang_memory().architectures:
        vendor = Vendor.AMD if arch.startswith("gfx") else Vendor.NVIDIA
        assert SERVER.image(vendor, arch) is not None
    assert SERVER.image(Vendor.AMD, "gfx90a") is None
