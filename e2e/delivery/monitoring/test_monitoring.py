"""The shipped monitors, rules and queries in a real Prometheus and Prometheus Operator."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.delivery.monitoring.monitored import (
    FOLDER,
    LEADER,
    OUT_OF_MEMORY,
    STANDBY,
    Monitored,
    monitored,
)
from e2e.harness.admin import SLOW, Admin, condition
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.models import inference
from e2e.programs.prometheus import Prometheus

DASHBOARD = json.loads((FOLDER / "dashboards" / "tonnage.json").read_text("utf-8"))
RULES = yaml.safe_load((FOLDER / "prometheusrule.yaml").read_text("utf-8"))["spec"]
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}
SELECTORS = sorted(
    {
        selector
        for group in RULES["groups"]
        for rule in group["rules"]
        for selector in re.findall(r"[a-z_:]+\{[^}]*\}", rule["expr"])
    }
)
KV_CACHE_TOKENS = 524_288  # in the recorded answer of vLLM


@pytest.fixture(scope="module")
def at_work(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    """Operators, models and a Prometheus that scrapes them, for the tests of this module."""
    with monitored(control_plane, installed, tmp_path_factory.mktemp("monitored")) as environment:
        yield environment


def vector(at_work: Monitored, query: str) -> list[Json]:
    """The result of a query as soon as there is one; a rate needs two scrapes."""
    return at_work.admin.until(
        f"data for {query}", lambda: at_work.prometheus.query(query), timeout=SLOW
    )


def test_the_monitors_select_the_pods_of_operator_and_models(at_work: Monitored) -> None:
    targets = [target["labels"] for target in at_work.prometheus.targets()]
    operators = {target["pod"]: target for target in targets if target["job"] == "tonnage"}
    assert set(operators) == {LEADER, STANDBY}
    assert operators[LEADER]["namespace"] == "tonnage-system"
    models = {
        (target["namespace"], target["inferencedeployment"], target["placement"])
        for target in targets
        if target["job"] == "vllm"
    }
    assert (at_work.namespace, "llama-70b", "mi300x") in models
    assert (at_work.namespace, "llama-8b", "l40s") in models
    assert {target["job"] for target in targets} == {"tonnage", "vllm"}


def test_the_unplaced_metric_keeps_the_namespace_of_the_object(at_work: Monitored) -> None:
    samples = vector(at_work, 'tonnage_unplaced_since_timestamp_seconds{name="too-large"}')
    assert {one["metric"]["namespace"] for one in samples} == {at_work.namespace}


def test_the_operator_reads_the_measured_kv_cache_from_prometheus(at_work: Monitored) -> None:
    placement = at_work.admin.wait_for("infd", "llama-70b", measured, timeout=SLOW)
    assert measured(placement) == KV_CACHE_TOKENS


def measured(model: Json) -> Any:
    return model["status"]["placements"][0].get("measuredKvCacheTokens")


def test_prometheus_evaluates_every_rule(at_work: Monitored) -> None:
    written = [rule["alert"] for group in at_work.rules["groups"] for rule in group["rules"]]
    shipped = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
    assert sorted(written) == sorted(shipped)
    at_work.admin.until(
        "every rule to be evaluated",
        lambda: all(rule["health"] == "ok" for rule in at_work.prometheus.rules()),
        timeout=SLOW,
        describe=lambda: str(at_work.prometheus.rules()),
    )
    assert sorted(rule["name"] for rule in at_work.prometheus.rules()) == sorted(shipped)


def test_the_dashboard_has_the_label_of_grafanas_sidecar(at_work: Monitored) -> None:
    (config_map,) = at_work.admin.items(
        "configmaps", "tonnage-system", selector="grafana_dashboard=1"
    )
    assert json.loads(config_map["data"]["tonnage.json"]) == DASHBOARD


EMPTY_IN_HEALTH = {
    "tonnage_permission_missing": "nothing is forbidden, so nothing was ever missing",
    "tonnage_fleet_file_valid": "this operator lists the nodes itself",
    'reason=~"PodFailed': "no pod fails here",
    "sglang:": "no model runs with SGLang here; test_dashboard.py has its metrics",
}
"""Metrics, and selections of them, without a series here, each with the reason."""


def may_be_empty(query: str) -> bool:
    return any(part in query for part in EMPTY_IN_HEALTH)


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_the_dashboard_has_data(at_work: Monitored, name: str) -> None:
    query = QUERIES[name].replace("$__rate_interval", "1m")
    query = query.replace("$namespace", ".+").replace("$model", ".+")
    assert "$" not in query
    assert vector(at_work, query)


@pytest.mark.parametrize("selector", SELECTORS)
def test_every_series_that_a_rule_reads_exists(at_work: Monitored, selector: str) -> None:
    if may_be_empty(selector):
        assert at_work.prometheus.query(selector) == []
    else:
        assert vector(at_work, selector)


@pytest.mark.parametrize(
    "variable", [one for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
)
def test_every_variable_of_the_dashboard_has_values(at_work: Monitored, variable: Json) -> None:
    question = re.fullmatch(r"label_values\((?P<of>.+), (?P<label>\w+)\)", variable["definition"])
    assert question
    selector = question["of"].replace("$namespace", ".+")
    assert at_work.prometheus.values_of(question["label"], selector)


ABOUT_MODELS = {
    "TonnageCrashLooping",
    "TonnageNotAccepted",
    "TonnageOutOfMemory",
    "TonnagePodsDoNotStart",
    "TonnagePredictionDrift",  # a model of some megabytes was recorded, and 70B predicted
}


def test_alerts_about_models_have_complete_texts(at_work: Monitored) -> None:
    def firing() -> dict[str, Json]:
        alerts = at_work.prometheus.alerts()
        return {one["labels"]["alertname"]: one for one in alerts if one["state"] == "firing"}

    alerts = at_work.admin.until(
        "the alerts to fire",
        lambda: alerts if (alerts := firing()).keys() >= ABOUT_MODELS else None,
        timeout=SLOW,
        describe=lambda: str(sorted(firing())),
    )
    for name in ABOUT_MODELS:
        alert = alerts[name]
        text = " ".join(alert["annotations"].values())
        assert re.search(r"\d", alert["annotations"]["description"]), f"{name} has no number"
        assert not re.search(r"<error|no value|  | \.|%!", text), text


@pytest.mark.parametrize(
    "alert",
    [
        "TonnageNoLeader",
        "TonnagePermissionMissing",
        "TonnageFleetListOverdue",
        "TonnageResyncOverdue",
        "TonnageReconcilePanics",
    ],
)
def test_a_healthy_operator_fires_no_alert(at_work: Monitored, alert: str) -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    (expression,) = [rule["expr"] for rule in rules if rule["alert"] == alert]
    # A scrape that a busy machine answers too late leaves a gap for a moment.
    at_work.admin.until(
        f"{alert} to have no cause",
        lambda: at_work.prometheus.query(expression) == [],
        timeout=SLOW,
        describe=lambda: str(at_work.prometheus.query(expression)),
    )


def test_an_alert_is_pending_then_firing_then_resolved(at_work: Monitored) -> None:
    admin, alert = at_work.admin, "TonnageOutOfMemory"

    def state() -> str:
        states = {
            current["state"]
            for current in at_work.prometheus.alerts()
            if current["labels"]["alertname"] == alert
        }
        return " and ".join(sorted(states))

    admin.apply(inference("out-of-memory", "llama-3.1-8b"))
    admin.wait_for("infd", "out-of-memory", condition("Ready"), timeout=SLOW)
    admin.until("the alert to end", lambda: state() == "", timeout=SLOW)
    ended = time.time()
    admin.delete("infd", "out-of-memory")  # or it would go back to what served before
    # Its child bears the name that the next one's will have.
    mine = "tonnage.dev/inferencedeployment=out-of-memory"
    admin.wait_items(
        "deployments", lambda deployments: not deployments, selector=mine, timeout=SLOW
    )
    admin.apply(OUT_OF_MEMORY)
    admin.until("the alert to fire", lambda: state() == "firing", timeout=SLOW)
    assert states_since(at_work.prometheus, alert, ended) == ["pending", "firing"]


def states_since(prometheus: Prometheus, alert: str, since: float) -> list[str]:
    """In which states an alert was from a time on, in turn, as Prometheus recorded it."""
    seconds = math.ceil(time.time() - since) + 1
    recorded = prometheus.query(f'ALERTS{{alertname="{alert}"}}[{seconds}s]')
    moments = sorted(
        (at, series["metric"]["alertstate"])
        for series in recorded
        for at, _ in series["values"]
        if at > since
    )
    return list(dict.fromkeys(state for _, state in moments))
