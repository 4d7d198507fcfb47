"""What is recorded of SGLang is what its own Python says: arguments, memory and metrics."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from accuracy.records import models
from accuracy.sglang import SGLangLayout, sglang_layouts
from e2e.programs.sglang_packages import sglang_python
from tests.support.engines.rendered_arguments import combined_sglang_lists, golden_lists
from tests.support.engines.shapes import CONFIGS
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.catalog.sglang_arguments import load_sglang_arguments
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.model import Device, Replica, ServerOptions
from tonnage.fit.sglang.pools import size_pools_of_stages

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "tests" / "support" / "sglang_memory"
TABLE = ROOT / "operator" / "tonnage" / "catalog" / "data" / "sglang_arguments.yaml"
PAGE = ROOT / "tests" / "data" / "sglang-metrics.txt"
ON_H100 = [one for one in sglang_layouts() if one.accelerator == "h100-sxm-80gb"]
FREE, WEIGHTS = 83_164_256_010, 20_000_000_000
"""Bytes of a GPU before loading, and of the weights of a stage."""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run one of the scripts, and return what it writes."""
    python, folder = sglang_python()
    variables = {
        "PYTHONPATH": str(folder),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "HOME": str(tmp_path_factory.mktemp("home")),
    }

    def run_script(name: str, *arguments: str, given: str = "") -> str:
        result = subprocess.run(
            [python, SCRIPTS / name, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], **variables},
        )
        assert result.returncode == 0, result.stderr[-2000:]
        return result.stdout

    return run_script


def test_the_table_has_the_arguments_of_the_parser(run: Run) -> None:
    compiled = load_sglang_arguments().compiled
    assert run("list_arguments.py", str(compiled)) == TABLE.read_text("utf-8")


def test_the_parser_reads_every_rendered_list(run: Run) -> None:
    lists = [*golden_lists("sglang"), *combined_sglang_lists()]
    given = "\n".join(map(json.dumps, lists))
    answers = [json.loads(line) for line in run("parse_arguments.py", given=given).splitlines()]
    assert len(answers) == len(lists) > 300
    assert [answer for answer in answers if "error" in answer] == []
    refused = run("parse_arguments.py", given=json.dumps(["--model-path=m", "--tp-size=x"]))
    assert "error" in json.loads(refused)


def test_the_page_of_metrics_has_the_series_of_the_collectors(run: Run) -> None:
    assert series(run("write_metrics.py")) == series(PAGE.read_text("utf-8"))


def series(page: str) -> set[str]:
    """The lines of a page, but for the process that wrote them."""
    return {re.sub(r'pid="\d+"', 'pid=""', line) for line in page.splitlines()}


def test_layouts_are_those_of_the_configurator(run: Run) -> None:
    driver_mib = {layout.driver_mib for layout in ON_H100}
    given = "\n".join(json.dumps(layout_of(layout)) for layout in ON_H100)
    lines = run("configure.py", "sm_90", str(*driver_mib), given=given).splitlines()
    answers = {one["id"]: one for one in map(json.loads, filter(None, lines))}
    assert len(answers) == len(ON_H100) > 10
    for layout in ON_H100:
        answer = answers[layout.id]
        assert answer["kvCacheTokens"] == layout.kv_cache_tokens, layout.id
        assert answer["memFractionStatic"] == layout.mem_fraction_static, layout.id


@pytest.mark.parametrize(
    ("name", "tensor", "stages"), [("deepseek-v3", 8, 2), ("llama-3.3-70b", 1, 3)]
)
def test_pools_of_stages_are_those_of_the_configurator(
    run: Run, name: str, tensor: int, stages: int
) -> None:
    config = json.loads((CONFIGS / f"{name}.json").read_text("utf-8"))
    given = [
        {
            "id": stage,
            "config": config,
            "kvCacheDtype": "auto",
            "tensorParallelSize": tensor,
            "pipelineParallelSize": stages,
            "stage": stage,
            "givenContext": 32768,
            "freeBytes": FREE,
            "weightsBytes": WEIGHTS,
        }
        for stage in range(stages)
    ]
    written = run("configure.py", "sm_90", "81559", given="\n".join(map(json.dumps, given)))
    answers = [json.loads(line) for line in written.splitlines() if line]
    options, memory = ServerOptions(32768, tensor, stages), load_sglang_memory()
    replica = Replica(parse_config(config), options, Device("sm_90", 81559))
    static = static_fraction(replica, memory).fraction
    pools = size_pools_of_stages(replica, [int(FREE * static) - WEIGHTS] * stages, memory)
    tokens = [one["kvCacheTokens"] for one in answers]
    assert [one["memFractionStatic"] for one in answers] == [pytest.approx(static)] * stages
    assert [pool.tokens for pool in pools] == pytest.approx(tokens, rel=1e-5)


def layout_of(layout: SGLangLayout) -> dict[str, object]:
    """The input of the script, as accuracy/records/sglang.jsonl has it, with its config."""
    return layout.model_dump(by_alias=True, mode="json") | {"config": models()[layout.model].config}
