"""`tonnage accelerators`: what other commands and specs can name."""

import json

import pytest

from tests.support.pages.command_line import Run, runner
from tonnage.catalog.load import load_catalog


@pytest.fixture
def accelerators(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "accelerators")


def test_all_are_listed_with_their_memory_and_price(accelerators: Run) -> None:
    code, out, err = accelerators()
    assert (code, err) == (0, "")
    heading, *lines = out.splitlines()
    assert heading.split()[:6] == ["ID", "NAME", "VENDOR", "ARCH", "GiB", "GPUS/NODE"]
    starts = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert starts == list(load_catalog().accelerators)
    (mi300x,) = (line for line in lines if line.startswith("mi300x "))
    want = "mi300x Instinct MI300X amd gfx942 192.0 8 1.99 2026-05-18"
    assert " ".join(mi300x.split()) == want


def test_a_family_and_a_vendor_are_listed_once(accelerators: Run) -> None:
    listed = [
        item["id"]
        for item in json.loads(accelerators("H200", "l4", "l4", "-o", "json")[1])["items"]
    ]
    assert listed == ["h200-sxm-141gb", "h200-nvl-141gb", "l4"]
    items = json.loads(accelerators("amd", "-o", "json")[1])["items"]
    assert {item["vendor"] for item in items} == {"amd"}


def test_json_has_the_source_of_the_price_and_why_a_card_is_not_planned_on(
    accelerators: Run,
) -> None:
    items = json.loads(accelerators("mi300x", "mi300a", "mi100", "-o", "json")[1])["items"]
    mi300x, mi300a, mi100 = items
    assert (mi300x["costPerGPUHour"], mi300x["priceDate"]) == ("1.99", "2026-05-18")
    assert "on demand" in mi300x["priceSource"]
    assert (mi300x["memoryBytes"], mi300x["message"]) == (206141652992, None)
    assert (mi300a["memoryBytes"], mi300a["supported"]) == (None, True)
    assert mi300a["message"] == "not planned on: the memory that torch sees is not known"
    assert mi100["message"].startswith("not planned on: gfx908")


def test_a_name_that_is_none_is_refused_with_the_nearest(accelerators: Run) -> None:
    code, out, err = accelerators("h100", "mi300")
    assert (code, out) == (2, "")
    assert "did you mean: mi300x" in err
