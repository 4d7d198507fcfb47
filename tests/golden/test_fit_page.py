"""docs/fit.md shows what the tool prints. TONNAGE_GOLDEN=write puts its answers into the page."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS
from tests.support.pages.command_line import Run, runner

PAGE = Path(__file__).parents[2] / "docs" / "fit.md"

QUESTION = re.compile(r"(?<=```console\n)\$ tonnage fit (?P<flags>--config .*)\n(?P<answer>[^`]*)")
PREDICTIONS = re.compile(r"(?<=```json\n)[^`]*")

LLAMA = json.loads((CONFIGS / "llama-3.3-70b.json").read_text())
CASES: list[dict[str, Any]] = [
    {
        "id": "a",
        "model": {"config": LLAMA},
        "accelerator": "h100-sxm-80gb",
        "engine": {"tensorParallelSize": 4, "maxModelLen": 32768, "vllmVersion": "0.32.0",
                   "extraArgs": ["--enable-eplb"]},
    },
    {
        "id": "b",
        "model": {"config": LLAMA},
        "accelerator": "h100-sxm-80gb",
        "engine": {"tensorParallelSize": 3, "vllmVersion": "0.32.0"},
    },
    {"id": "c", "model": {"config": LLAMA}, "engine": {"maxModelLen": -1}},
]  # fmt: skip


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(CONFIGS)
    return runner(capsys, "fit")


def render(page: str, fit: Run, cases: Path) -> str:
    """The page with what the tool answers now in the place of what stands there."""

    def ask(match: re.Match[str]) -> str:
        out = fit(*shlex.split(match["flags"]))[1]
        lines = [line.rstrip() for line in out.splitlines()]
        return "\n".join([f"$ tonnage fit {match['flags']}", *lines]) + "\n"

    predictions = fit("--batch", str(cases))[1].splitlines()
    shown = "\n".join(json.dumps(rounded(json.loads(line))) for line in predictions) + "\n"
    return PREDICTIONS.sub(lambda _: shown, QUESTION.sub(ask, page))


def rounded(value: Any) -> Any:
    """A JSON value with two decimals."""
    match value:
        case dict():
            return {key: rounded(each) for key, each in value.items()}
        case list():
            return [rounded(each) for each in value]
        case float():
            return round(value, 2)
        case _:
            return value


def test_the_page_shows_what_the_tool_prints(fit: Run, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text("\n".join(json.dumps(case) for case in CASES))
    page = PAGE.read_text(encoding="utf-8")
    want = render(page, fit, cases)
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        PAGE.write_text(want, encoding="utf-8")
        return
    assert QUESTION.search(page)
    assert page == want, "docs/fit.md differs: `make golden`, then read the diff"
