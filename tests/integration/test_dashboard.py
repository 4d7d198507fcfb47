"""The queries of the dashboard about models in the real promtool, over what each engine shows."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from e2e.harness.binaries import program_path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PAGES = {
    "vllm": DATA / "vllm-metrics" / "after-requests.txt",
    "sglang": DATA / "sglang-metrics.txt",
}
DASHBOARD = json.loads(
    (ROOT / "manifests" / "monitoring" / "dashboards" / "tonnage.json").read_text("utf-8")
)
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
    if "vllm:" in target["expr"]
}
SCRAPED = 'job="vllm",namespace="chat",inferencedeployment="llama",pod="llama-0"'
SAMPLE = re.compile(r"(?P<name>(vllm|sglang):\w+)\{(?P<labels>.*)\} (?P<value>\S+)")


def series_of(page: Path) -> Iterator[dict[str, str]]:
    """The samples of a page as series that grow by their value with each scrape, as Prometheus has
    them; gauges stay."""
    text = page.read_text("utf-8")
    gauges = set(re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE))
    for line in text.splitlines():
        sample = SAMPLE.fullmatch(line)
        if sample and sample["value"] != "NaN":
            name, value = sample["name"], f"{float(sample['value']):f}"
            values = f"{value}x20" if name in gauges else f"0+{value}x20"
            yield {"series": f"{name}{{{sample['labels']},{SCRAPED}}}", "values": values}


@pytest.mark.parametrize("engine", PAGES)
def test_every_query_about_models_has_a_result_for_each_engine(engine: str, tmp_path: Path) -> None:
    assert len(QUERIES) > 10
    expressions = []
    for query in QUERIES.values():
        asked = query.replace("$__rate_interval", "5m")
        asked = asked.replace("$namespace", ".+").replace("$model", ".+")
        samples = [{"labels": "{}", "value": 1}]
        expressions.append(
            {"expr": f"clamp_max(count({asked}), 1)", "eval_time": "15m", "exp_samples": samples}
        )
    check(tmp_path, list(series_of(PAGES[engine])), expressions)


@pytest.mark.parametrize(
    ("panel", "metric"),
    [("Requests running A", "num_running_reqs"), ("Requests waiting A", "num_queue_reqs")],
)
def test_requests_that_sglang_shows_by_priority_as_well_count_once(
    panel: str, metric: str, tmp_path: Path
) -> None:
    series = [
        {"series": f'sglang:{metric}{{{SCRAPED},tp_rank="0",priority="{name}"}}', "values": value}
        for name, value in {"": "6x20", "1": "4x20", "9": "2x20"}.items()
    ]
    labels = '{namespace="chat",inferencedeployment="llama"}'
    expression = {
        "expr": QUERIES[panel].replace("$namespace", ".+").replace("$model", ".+"),
        "eval_time": "15m",
        "exp_samples": [{"labels": labels, "value": 6}],
    }
    check(tmp_path, series, [expression])


def check(
    folder: Path, series: Sequence[Mapping[str, str]], expressions: Sequence[Mapping[str, object]]
) -> None:
    case = {"interval": "1m", "input_series": [*series], "promql_expr_test": [*expressions]}
    path = folder / "case.yaml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}), "utf-8")
    result = subprocess.run(
        [program_path("promtool"), "test", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
