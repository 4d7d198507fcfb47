"""What the cluster benchmark counts, and the figures and tables that it makes of it."""

import json
from dataclasses import replace

import pytest

from benchmarks.cluster.baselines import CONTROLLERS, DEPLOYMENT, LWS, TONNAGE
from benchmarks.cluster.latency_probe import CHANGE_ANNOTATION, Stage, change_of
from benchmarks.cluster.operator_metrics import OperatorCounters
from benchmarks.cluster.reconcile_log import ReconcileLog
from benchmarks.cluster.resource_cost import RequestCost, most_frequent, requests_of, writes_of
from benchmarks.cluster.rounds import (
    ChangeRound,
    ClusterResults,
    CreateRound,
    IdleRound,
    LoadPlan,
    OperatorWork,
    TouchRound,
)
from benchmarks.cluster.usage import CpuUse
from benchmarks.pages.cluster_figures import (
    cluster_figures,
    cluster_tables,
    plans_per_object,
    requests_per_reconcile,
)
from benchmarks.pages.figures import Bar
from e2e.harness.failure import HarnessError


def audited(verb, resource, *, user="system:serviceaccount:kube-system:deployment-controller",
            agent="kube-controller-manager/v1.35", milliseconds=5, subresource=None):  # fmt: skip
    reference = {"resource": resource} | ({"subresource": subresource} if subresource else {})
    return {
        "verb": verb,
        "objectRef": reference,
        "user": {"username": user},
        "userAgent": agent,
        "requestReceivedTimestamp": "2026-11-23T22:00:00.000000Z",
        "stageTimestamp": f"2026-11-23T22:00:00.{milliseconds:03}000Z",
    }


def test_requests_are_those_of_a_user_or_a_program_without_watches_and_leases():
    events = [
        audited("create", "replicasets"),
        audited("watch", "replicasets"),
        audited("update", "leases"),
        audited("get", "deployments"),
        audited("patch", "statefulsets", user="admin", agent="lws/v0.7.0 (linux/amd64)"),
        {**audited("get", "x"), "objectRef": None} | {"objectRef": {"resource": "x"}},
    ]
    assert len(requests_of(DEPLOYMENT.user, events)) == 3
    assert [event["verb"] for event in requests_of(LWS.user, events)] == ["patch"]
    assert [event["verb"] for event in writes_of("", events)] == ["create", "patch"]


def test_request_cost_adds_rounds():
    cost = RequestCost()
    cost.add(2, [audited("create", "replicasets", milliseconds=10)] * 2, DEPLOYMENT.user)
    cost.add(1, [audited("update", "deployments", subresource="status")], LWS.user)
    assert (cost.objects, cost.by_controller) == (3, 2)
    assert cost.seconds["create replicasets"] == pytest.approx([0.01, 0.01])
    assert most_frequent([cost, RequestCost()]) == [
        "create replicasets",
        "update deployments/status",
    ]


def use(seconds=10.0, **by_process):
    everybody = {"kube-controller-manager": 0.0, "lws-controller": 0.0, "tonnage": 0.0}
    return CpuUse(seconds, everybody | by_process, 12.0)


def created(*, reconciles=0, resync=None, others=0, tonnage=1.0, rate=5.0):
    counters = OperatorCounters(reconciles, reconciles, 0.0, resync)
    return CreateRound(
        rate=rate,
        objects=100,
        present=300,
        delays={Stage.CHILD: [0.01, 0.02], Stage.STATUS: [0.1, 0.2]},
        stage_seconds={Stage.CHILD: 20.0, Stage.STATUS: 21.0},
        incomplete=0,
        creating=use(tonnage=tonnage),
        until_settled=use(tonnage=tonnage),
        operator=OperatorWork(counters, others),
    )


IDLE = IdleRound(OperatorWork(OperatorCounters(3, 3, 0.0, None)), 0, use(30.0, tonnage=0.3))


def test_plans_of_an_object_leave_out_those_of_an_idle_cluster_and_of_a_resync():
    assert plans_per_object(created(reconciles=201), IDLE) == pytest.approx(2.0)
    assert plans_per_object(created(reconciles=251, others=50), IDLE) == pytest.approx(2.5)
    assert plans_per_object(created(reconciles=251, others=50, resync=1.0), IDLE) == (
        pytest.approx(2.0)
    )
    assert plans_per_object(created(reconciles=0), IDLE) == 0.0
    assert plans_per_object(created(reconciles=201), None) is None


def results():
    touched = TouchRound(
        300,
        OperatorWork(OperatorCounters(300, 300, 0.6, None)),
        {"patch deployments": 30},
        {"list priorityclasses": 1},
        use(30.0, tonnage=0.9),
    )
    rounds = [created(reconciles=201, rate=rate) for rate in (5, 10, 20)]
    cost = RequestCost(300)
    cost.by_controller = 1200
    return ClusterResults(
        steady={"Tonnage": rounds, "LWS": rounds},
        bursts={"Tonnage": created(rate=0), "LWS": created(rate=0)},
        changes={"Tonnage": ChangeRound(5, [0.05, 0.07], 0, use())},
        requests={"Tonnage": cost},
        peak_rss_bytes={"Tonnage": 2**27},
        idle=IDLE,
        touched=touched,
    )


def test_every_bar_has_its_figure():
    figures = {figure.name: figure for figure in cluster_figures(results(), LoadPlan())}
    barred = {name: figure.bar for name, figure in figures.items() if figure.bar is not None}
    child = "20 objects a second: child"
    assert barred["5 objects a second: child p50"] == Bar(1, "LWS")
    assert (barred[f"{child} p50"], barred[f"{child} p99"]) == (Bar(0.5, "LWS"), Bar(0.3, "LWS"))
    assert figures["burst of 1,000: all statuses"].limit == pytest.approx(31.5)
    assert len(barred) == 9 + 2 + 2 + 2 + 2
    unchanged = "reconcile of an unchanged object"
    assert figures[f"{unchanged}: requests"].values["Tonnage"] == pytest.approx(0.1)
    assert figures[f"{unchanged}: duration"].values["Tonnage"] == pytest.approx(2.0)
    assert figures[f"{unchanged}: CPU, with its event"].values["Tonnage"] == pytest.approx(2.0)
    new = "a new object until settled, the worst of the rates"
    assert figures[f"{new}: CPU of the controller"].values["Tonnage"] == pytest.approx(10.0)
    assert figures[f"{new}: plans"].values["Tonnage"] == pytest.approx(2.0)
    assert figures["a new object: requests of the controller"].values["Tonnage"] == 4.0


def test_requests_about_the_cluster_count_unless_they_are_seldom():
    touched = results().touched
    assert requests_per_reconcile(touched) == pytest.approx(0.1)
    often = replace(touched, cluster_requests={"list nodes": 300, "list pools": 29})
    assert requests_per_reconcile(often) == pytest.approx(1.1)


def test_nothing_measured_is_no_figure_and_no_error():
    empty = ClusterResults()
    figures = cluster_figures(empty, LoadPlan())
    assert {figure.verdict for figure in figures if figure.bar} == {"not measured"}
    assert cluster_tables(empty, LoadPlan())


def test_tables_have_as_many_cells_as_columns():
    for table in cluster_tables(results(), LoadPlan()):
        assert {len(row) for row in table.rows} <= {len(table.columns)}, table.title


def test_cpu_that_no_measured_process_used_belongs_to_others():
    (table, *_) = (
        one
        for one in cluster_tables(results(), LoadPlan())
        if one.title == "CPU seconds until 5 objects a second have settled"
    )
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["tonnage"] == ("1.0", "1.0")
    assert rows["others on the machine"] == ("11.0", "11.0")


def test_a_short_run_has_the_same_rates():
    plan = LoadPlan().shortened()
    assert plan.steady == ((5, 6.0), (10, 6.0), (20, 1.5))
    assert (plan.present, plan.burst, plan.changes_per_second) == (30, 100, 5)
    assert LoadPlan().most_objects == 1300
    assert plan.describe()["new objects"] == "5/s for 6 s, 10/s for 6 s, 20/s for 1.5 s"


def test_what_other_programs_use_is_counted():
    assert results().other_cores == pytest.approx(1.1, abs=0.05)
    assert ClusterResults().other_cores is None


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda one: one.name)
def test_a_change_goes_into_the_pod_template_of_a_parent(controller):
    body = controller.make("a", 0, "r")
    assert body["metadata"] == {"name": "a", "labels": {"scale.example.org/round": "r"}}
    spec = controller.change("7")["spec"]
    template = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
    assert template["metadata"]["annotations"] == {CHANGE_ANNOTATION: "7"}
    assert change_of({"spec": {"template": template}}) == "7"
    assert spec.keys() <= body["spec"].keys() or controller is TONNAGE


def line(key, second):
    fields = {"message": "reconciled", "key": key, "time": f"2026-11-23T22:00:0{second}+00:00"}
    return json.dumps(fields) + "\n"


def test_the_log_counts_reconciles_of_complete_lines_since_the_last_skip(tmp_path):
    path = tmp_path / "operator.log"
    log = ReconcileLog(path)
    log.refresh()
    path.write_text(line("a/x", 1) + "not json\n" + line("a/y", 2) + line("a/x", 3) + '{"mess')
    log.refresh()
    assert log.reconciles == {"a/x": 2, "a/y": 1}
    assert log.last - log.first["a/x"] == 2.0
    assert log.count_others({"a/x", "a/none"}) == 1
    log.skip()
    assert (log.reconciles.total(), log.first) == (0, {})


async def test_waiting_for_reconciles_names_what_is_missing(tmp_path):
    path = tmp_path / "operator.log"
    path.write_text(line("a/x", 1))
    log = ReconcileLog(path)
    await log.until_quiet({"a/x"}, 0.1, 5.0)
    with pytest.raises(HarnessError, match="1 of 2 objects are not reconciled, after 1 reconciles"):
        await log.until_quiet({"a/x", "a/y"}, 0.1, 0.0)
