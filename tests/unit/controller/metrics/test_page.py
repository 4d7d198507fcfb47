"""docs/metrics.md lists all metrics with their help texts, and no others."""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.load.measured import Measured
from tonnage.controller.metrics.components import register_fleet_file_metric
from tonnage.kube.rights import Right

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"
FROM_ELSEWHERE = ("process_", "python_")


def all_families() -> list[Metric]:
    """All metrics, each with a series that shows its labels."""
    measured = Measured()
    measured.rights.denied(Right("get", "", "configmaps", "chat"))
    register_fleet_file_metric(measured.metrics.registry, lambda: True)
    measured.everything_happens()
    return [
        family
        for family in text_string_to_metric_families(measured.text())
        if not family.name.startswith(FROM_ELSEWHERE)
    ]


def row(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = dict.fromkeys(label for sample in family.samples for label in sample.labels)
    shown = ",".join(label for label in labels if label != "le")
    series = f"{name}{{{shown}}}" if shown else name
    return f"| `{series}` | {family.type} | {family.documentation} |"


def rows(families: Iterable[Metric]) -> list[str]:
    return sorted(row(family) for family in families)


def test_the_page_has_a_row_for_each_metric_and_no_other() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if line.startswith("| `") and line.count(" | ") == 2]
    want = rows(all_families())
    assert sorted(listed) == want, "docs/metrics.md should have these rows:\n" + "\n".join(want)
