"""Alerts, runbook and dashboard say the same, and leave no reason without a place."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.support.pages.markdown_pages import read_page
from tonnage.api.conditions import Reason
from tonnage.engines.registry import engine_named

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "manifests" / "monitoring"
SGLANG = ROOT / "tests" / "data" / "sglang-metrics.txt"
RUNBOOK = ROOT / "docs" / "runbook.md"
DASHBOARD = json.loads((FOLDER / "dashboards" / "tonnage.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
GROUPS = yaml.safe_load((FOLDER / "prometheusrule.yaml").read_text("utf-8"))["spec"]["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
SECTIONS = dict(
    re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", RUNBOOK.read_text("utf-8"), re.MULTILINE | re.DOTALL)
)

WELL = {
    *("Valid", "ResolvingModel", "PoolChosen", "ScaledToZero", "ReplicasReady", "PoolUsable"),
    *("LoadMeasured", "ReplicasGiven", "AsPredicted"),
    *("Applied", "RollingOut", "Waiting", "Settled"),
    "DownloadingWeights",
    *("NotPlaced", "NotAccepted"),  # they point to another condition, whose reason has a section
}
"""Reasons that need no action."""

NO_ALERT = {
    "ContainersNotReady": "loading takes minutes, and what hinders it has a reason of its own",
    "AwaitingApproval": "it waits because it was asked to",
    "RolloutPaused": "the same",
    "KindMissing": "the InferencePool alone is concerned, and no request is lost",
    "Unreachable": "the same, and it is tried again",
    "ModelNotConfirmed": "what runs goes on; pods that cannot download weights have a reason",
    "NoOpinion": "TonnageScalingBlind goes by the condition, which has no other reason when False",
    **dict.fromkeys(
        ("MeasuredLess", "MeasuredMore"),
        "TonnagePredictionDrift goes by how far off it is; a small one is calibrated",
    ),
    "EndpointNotReady": "the endpoint is an object of its own, with a reason and alerts of its own",
    "Forbidden": "TonnagePermissionMissing says which permission",
    **dict.fromkeys(
        (
            "NoMatchingPool",
            "DoesNotFit",
            "InsufficientGPUs",
            "QuotaExceeded",
            "LimitRangeViolated",
            "PodSecurityViolated",
            "InsufficientResources",
            "NoMatchingNodes",
            "OverBudget",
            "TooSlow",
        ),
        "TonnageUnplaced fires whatever the reason is",
    ),
    **dict.fromkeys(
        ("NoNodes", "NoUsableNodes", "Unrecognised"),
        "a pool that no object needs does no harm; an object that wants it is unplaced",
    ),
}
"""Reasons that no alert names, and why."""


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_complete_and_links_its_section(alert):
    rule = ALERTS[alert]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor == alert.lower()
    assert anchor in read_page(RUNBOOK).anchors


@pytest.mark.parametrize("alert", ALERTS)
def test_the_section_of_an_alert_has_commands_causes_and_warnings(alert):
    section = SECTIONS[alert]
    assert "\n```console\n$ " in section
    assert re.search(r"^1\. ", section, re.MULTILINE)
    assert "Do not " in section


def test_every_section_of_the_runbook_belongs_to_an_alert_or_a_reason():
    assert SECTIONS.keys() == ALERTS.keys() | ({str(reason) for reason in Reason} - WELL)


@pytest.mark.parametrize("reason", sorted({str(reason) for reason in Reason} - WELL))
def test_every_reason_is_in_an_alert_or_an_explained_exception(reason):
    named = {
        word
        for rule in ALERTS.values()
        for words in re.findall(r'reason=~?"([\w|]+)"', rule["expr"])
        for word in words.split("|")
    }
    assert (reason in named) != (reason in NO_ALERT)


def test_alerts_name_existing_reasons():
    words = re.findall(
        r'reason(?:=~|!=|=)"([\w|]+)"', str([rule["expr"] for rule in ALERTS.values()])
    )
    assert {word for alternatives in words for word in alternatives.split("|")} <= {
        str(one) for one in Reason
    }


@pytest.mark.parametrize("key", ["id", "title"])
def test_panels_have_unique_titles_and_ids(key):
    values = [panel[key] for panel in DASHBOARD["panels"]]
    assert len(set(values)) == len(values)


def test_panels_do_not_overlap():
    cells = [cell for panel in DASHBOARD["panels"] for cell in cells_of(**panel["gridPos"])]
    assert len(set(cells)) == len(cells)
    assert all(column < 24 for column, _ in cells)


def cells_of(x, y, w, h):
    return [(column, line) for column in range(x, x + w) for line in range(y, y + h)]


def test_rows_go_from_the_fleet_and_the_models_down_to_the_operator():
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    titles = ["Fleet", "Models", "Load and calibration", "Operator"]
    assert [row["title"] for row in rows] == titles
    assert all(above["gridPos"]["y"] < below["gridPos"]["y"] for above, below in pairwise(rows))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_description_and_queries_the_chosen_prometheus(panel):
    assert len(panel["description"]) > 10
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        selectors = re.findall(r"[a-z_:]+\{([^}]*)\}", target["expr"])
        assert all(
            re.search(r'job="(tonnage|vllm)"|alertname=', selector) for selector in selectors
        )
        assert not re.search(r"[\w:]+\[", target["expr"]), "a range of a metric without its job"


def test_every_metric_of_sglang_is_one_that_it_shows():
    types = dict(
        re.findall(r"^# TYPE (sglang:\S+) (\w+)$", SGLANG.read_text("utf-8"), re.MULTILINE)
    )
    rules = [rule["expr"] for rule in ALERTS.values()]
    panels = [target["expr"] for panel in PANELS for target in panel["targets"]]
    named = set(re.findall(r"sglang:\w+", " ".join((*rules, *panels))))
    assert len(named) >= 10
    assert {name.removesuffix("_bucket") for name in named} <= types.keys()
    counters = {
        name
        for name in re.findall(r"rate\((sglang:\w+)", " ".join(panels))
        if "_bucket" not in name
    }
    assert {types[name] for name in counters} == {"counter"}
    read = [engine_named("sglang").cache_metric.name, *load_names()]
    assert {*read} <= types.keys()


def load_names():
    metrics = engine_named("sglang").load_metrics
    names = (metrics.running, metrics.waiting, metrics.kv_usage, metrics.first_token)
    return [*names, metrics.per_token]


def test_every_query_about_vllm_has_its_like_for_sglang():
    queries = [rule["expr"] for rule in ALERTS.values()]
    queries += [target["expr"] for panel in PANELS for target in panel["targets"]]
    for query in queries:
        assert ("vllm:" in query) == ("sglang:" in query), query


def test_panels_of_models_follow_the_variables():
    for panel in PANELS:
        for target in panel["targets"]:
            if "vllm:" in target["expr"]:
                assert 'namespace=~"$namespace", inferencedeployment=~"$model"' in target["expr"]
