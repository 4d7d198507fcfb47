"""The shipped alerts in the real promtool: what makes each fire, when, and what does not."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.harness.binaries import program_path

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "alerts"
RULES = yaml.safe_load(
    (ROOT / "manifests" / "monitoring" / "prometheusrule.yaml").read_text("utf-8")
)
ALERTS = {
    rule["alert"]: rule
    for group in RULES["spec"]["groups"]
    for rule in group["rules"]
    if "alert" in rule
}
SAMPLES = [
    sample["labels"]
    for path in sorted(CASES.glob("*.yaml"))
    for test in yaml.safe_load(path.read_text("utf-8"))["tests"]
    for query in test["promql_expr_test"]
    for sample in query["exp_samples"]
    if sample.get("labels")
]


@pytest.fixture
def rules(tmp_path):
    """The rules as Prometheus reads them, which the Prometheus Operator writes from the object."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(RULES["spec"]), "utf-8")
    return path


def promtool(*arguments):
    return subprocess.run(
        [program_path("promtool"), *arguments], capture_output=True, text=True, check=False
    )


def test_promtool_accepts_the_rules(rules):
    result = promtool("check", "rules", "--lint=all", "--lint-fatal", str(rules))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_not_before(rules, path):
    cases = rules.parent / path.name  # promtool looks for the rules next to the cases
    cases.write_bytes(path.read_bytes())
    result = promtool("test", "rules", str(cases))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_annotations_use_only_labels_that_a_firing_alert_has(alert):
    fired = [
        set(re.findall(r"(\w+)=", labels)) for labels in SAMPLES if f'alertname="{alert}"' in labels
    ]
    assert fired, f"no case in {CASES} expects {alert} to fire"
    used = set(re.findall(r"\$labels\.(\w+)", str(ALERTS[alert]["annotations"])))
    assert all(used <= labels for labels in fired)
