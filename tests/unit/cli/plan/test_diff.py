"""`tonnage plan --diff`: the changes in a cluster, without fields of other managers."""

import asyncio

import pytest
import yaml

from tests.support.api_server.live_fake import connect_to
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.serving import served
from tonnage.cli.commands import plan as plan_module
from tonnage.cli.main import main
from tonnage.cli.plan.diff import Difference, diff_action
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.actions import Apply


@pytest.fixture
def diff(tmp_path, capsys, monkeypatch):
    """Exit code and lines of `plan --diff` for an object as in a Git repository."""

    def run(cluster, *more, **spec):
        connect_to(monkeypatch, cluster.api, plan_module)
        body = {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": "llama"},
            "spec": spec_of(**spec),
        }
        path = tmp_path / "llama.yaml"
        path.write_text(yaml.safe_dump(body))
        code = main(["plan", "-f", str(path), "--diff", *more])
        printed = capsys.readouterr()
        assert printed.err == ""
        return code, printed.out.splitlines()

    return run


def changes(lines):
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def test_without_a_change_nothing_is_printed(diff):
    assert diff(asyncio.run(served(MI300X, replicas=1)), replicas=1) == (0, [])


def test_a_changed_field_is_shown_where_it_stands(diff):
    code, lines = diff(asyncio.run(served(MI300X, replicas=1)), replicas=2)
    assert code == 1
    assert f"--- live/Deployment/{NAMESPACE}/llama-mi300x" in lines
    assert {"-  replicas: 1", "+  replicas: 2"} <= set(changes(lines))
    assert "-- replicas: 1" not in lines


GATEWAY = {"inferencePool": {"endpointPickerRef": {"name": "epp", "port": {"number": 9002}}}}


def test_an_inference_pool_is_a_child_like_any_other(diff):
    cluster = asyncio.run(served(MI300X, replicas=1))
    cluster.apply("llama", spec_of(replicas=1, gateway=GATEWAY))
    asyncio.run(cluster.settle())
    assert diff(cluster, replicas=1, gateway=GATEWAY) == (0, [])
    code, lines = diff(cluster, replicas=1)
    assert code == 1
    assert f"--- live/InferencePool/{NAMESPACE}/llama" in lines
    code, lines = diff(asyncio.run(served(MI300X, replicas=1)), replicas=1, gateway=GATEWAY)
    assert code == 1
    assert f"+++ plan/InferencePool/{NAMESPACE}/llama" in lines


def test_a_new_object_is_all_plus(diff):
    code, lines = diff(Cluster(MI300X))
    assert code == 1
    assert lines.count("--- /dev/null") == 3, "its placement, its Service, its Deployment"
    assert all(line.startswith("+") for line in changes(lines))
    assert not any("ownerReferences" in line for line in lines), "its uid is not known yet"


def test_an_unplaced_object_ends_with_3_even_without_a_change(diff):
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(placement={"accelerators": ["h100-sxm-80gb"]}))
    asyncio.run(cluster.settle())
    assert diff(cluster, placement={"accelerators": ["h100-sxm-80gb"]}) == (3, [])


def test_a_manual_change_is_what_the_operator_reverts(diff):
    cluster = asyncio.run(served(MI300X, replicas=1))
    body = cluster.deployment("llama-mi300x")
    body["spec"]["replicas"] = 5
    body["metadata"]["annotations"]["someone/else"] = "x"
    cluster.api.put(DEPLOYMENTS, body)
    code, lines = diff(cluster, replicas=1)
    assert code == 1
    assert changes(lines) == ["-  replicas: 5", "+  replicas: 1"]


def test_a_migration_shows_the_new_placement_and_keeps_the_serving_one(diff):
    cluster = asyncio.run(served(MI300X, H100, replicas=1))
    code, lines = diff(cluster, placement={"accelerators": ["h100-sxm-80gb"]})
    assert code == 1
    assert "+  pool: nvidia-h100-sxm-80gb" in changes(lines)
    assert "-  pool: amd-mi300x" not in changes(lines)
    assert f"+++ plan/Deployment/{NAMESPACE}/llama-h100-sxm-80gb" in lines


@pytest.mark.parametrize("more", [["-o", "json"], ["--optimize"]])
def test_a_diff_is_a_diff_and_nothing_else(tmp_path, capsys, more):
    assert main(["plan", "-f", str(tmp_path), "--diff", *more]) == 2
    assert "leave out -o and --optimize" in capsys.readouterr().err


LIVE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "llama",
        "namespace": "chat",
        "uid": "u",
        "annotations": {"kubectl.kubernetes.io/restartedAt": "now"},
        "managedFields": [
            {"manager": "kube-controller-manager", "fieldsV1": {"f:status": {}}},
            {
                "manager": "tonnage",
                "fieldsV1": {
                    "f:spec": {
                        "f:env": {'k:{"name":"OLD"}': {".": {}, "f:name": {}, "f:value": {}}},
                        "f:paused": {},
                    }
                },
            },
        ],
    },
    "spec": {
        "env": [
            {"name": "THEIRS", "value": "1"},
            {"name": "OLD", "value": "1"},
            {"name": "KEPT", "value": "1", "defaulted": True},
        ],
        "paused": True,
        "revisionHistoryLimit": 10,
        "args": ["a", "b"],
        "tolerations": [{"key": "a", "defaulted": True}],
    },
}
WANTED = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "llama", "namespace": "chat", "uid": "u"},
    "spec": {
        "env": [{"name": "KEPT", "value": "2"}, {"name": "NEW", "value": "1"}],
        "args": ["a"],
        "tolerations": [{"key": "a"}],
    },
}


def test_only_fields_that_the_operator_manages_are_compared():
    difference = diff_action(Apply(DEPLOYMENTS, WANTED, exists=True), [LIVE])
    assert sorted(changes(difference.lines)) == [
        *("+    value: '2'", "+  - name: NEW"),
        *("-    value: '1'", "-  - b", "-  - name: OLD", "-  paused: true"),
    ]


def test_an_object_missing_on_one_side_is_dev_null():
    assert Difference("x", "", "a: 1\n").lines[:2] == ["--- /dev/null", "+++ plan/x"]
    assert Difference("x", "a: 1\n", "").lines[:2] == ["--- live/x", "+++ /dev/null"]
    assert Difference("x", "a: 1\n", "a: 1\n").lines == []
