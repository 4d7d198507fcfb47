"""Two shards: each reconciles its own part of the fleet and leaves the other part alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from typing import Final
from urllib.parse import unquote

import pytest
import yaml

from e2e.harness.admin import SLOW, WRITES, Admin
from e2e.harness.operator_process import ROOT, Account, OperatorProcess
from e2e.harness.rest import Json, Rest
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, has, runs_on
from e2e.models import inference
from e2e.programs.helm import OPERATOR_CHART, Helm
from e2e.rights import denied
from tests.support.load.exposition import read_series
from tonnage.api.names import LABEL_OWNER, LABEL_SHARD

EAST, WEST = "east", "west"
H100 = "nvidia-h100-sxm-80gb"
NODES: Final = {
    "groups": [
        {"name": name, "accelerator": "h100-sxm-80gb", "count": 1, "labels": {LABEL_SHARD: name}}
        for name in (EAST, WEST)
    ]
}
"""The same cards in both, so that nothing but the shard tells their nodes apart."""


DISPATCHED = "apiserver_flowcontrol_dispatched_requests_total"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
GRANTED = (
    *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    *POLICIES,
)
FLOW_CONTROL = ROOT / "manifests" / "components" / "priority-and-fairness" / "flow-control.yaml"


def account_of(shard: str) -> Account:
    """A shard's operator has the namespace that its overlay and its release have."""
    return Account(f"tonnage-{shard}", "tonnage")


class Shards:
    """The operators by shard, and what each asked for."""

    def __init__(self, admin: Admin, operators: dict[str, OperatorProcess]) -> None:
        self.admin = admin
        self.operators = operators

    def start_all(self) -> None:
        """Start those that do not run."""
        for operator in self.operators.values():
            if not operator.running:
                operator.start()
        self.admin.until(
            "both to lead",
            lambda: all(each.leads for each in self.operators.values()),
            timeout=SLOW,
        )

    def touched(self, shard: str, since: int) -> set[str]:
        """The InferenceDeployments to which the shard's operator has written anything."""
        writes = self.admin.requests(account_of(shard).user, verbs=WRITES, since=since)
        return {
            event["objectRef"]["name"]
            for event in writes
            if event["objectRef"]["resource"] in ("inferencedeployments", "deployments", "services")
        }


@pytest.fixture(scope="module")
def shards(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shards]:
    """East from the overlay, west from the chart, each under its own ServiceAccount."""
    rendered = {
        EAST: list(
            yaml.safe_load_all(
                installed.kubectl("kustomize", str(ROOT / "manifests" / "overlays" / "shard"))
            )
        ),
        WEST: Helm(tmp_path_factory.mktemp("helm")).render(
            OPERATOR_CHART, f"--set=shard={WEST}", namespace=account_of(WEST).namespace
        ),
    }
    operators = {}
    with ExitStack() as ends:
        ends.callback(withdraw, installed)
        for shard, objects in rendered.items():
            grant(installed, account_of(shard), objects)
            operators[shard] = OperatorProcess(
                control_plane,
                tmp_path_factory.mktemp(shard),
                environment=environment_of(objects) | {"HF_ENDPOINT": "http://127.0.0.1:9"},
                account=account_of(shard),
            )
            ends.callback(operators[shard].close)
        installed.apply(flow_control([account_of(shard) for shard in rendered]))
        yield Shards(installed, operators)


def grant(admin: Admin, account: Account, objects: list[Json]) -> None:
    """All objects of an installation but the Deployment: the operator runs as a process here."""
    name = account.namespace
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    admin.apply([manifest for manifest in objects if manifest["kind"] in GRANTED])
    admin.wait_for("serviceaccounts", account.name, lambda _: True, name)
    admin.until(
        "the authorizer to know its role",
        lambda: admin.allows(account.user, "patch", "deployments.apps", "default"),
        timeout=SLOW,
    )


def environment_of(objects: list[Json]) -> dict[str, str]:
    """The settings of the Deployment that the overlay or the chart makes."""
    (deployment,) = (manifest for manifest in objects if manifest["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {
        variable["name"]: variable["value"]
        for variable in container["env"]
        if variable["name"].startswith("TONNAGE_") and "CACHE" not in variable["name"]
    }


def flow_control(accounts: list[Account]) -> list[Json]:
    """The component with these operators as its subjects, as its comment says."""
    objects = list(yaml.safe_load_all(FLOW_CONTROL.read_text("utf-8")))
    for schema in objects:
        for rule in schema["spec"].get("rules", []):
            (shipped,) = rule["subjects"]
            rule["subjects"] = []
            for account in accounts:
                subject = deepcopy(shipped)
                subject["serviceAccount"] = {"namespace": account.namespace, "name": account.name}
                rule["subjects"].append(subject)
    return objects


def withdraw(admin: Admin) -> None:
    """Leave a cluster in which the tests of others find nothing of this."""
    for shard in (EAST, WEST):
        name = account_of(shard).namespace
        for kind in ("clusterrolebindings", "clusterroles"):
            admin.delete(kind, name, timeout=None)
        admin.delete("namespaces", name, timeout=None)
        admin.delete("apool", f"{shard}-{H100}", timeout=None)
    for kind in ("clusterroles", *map(str.lower, POLICIES)):
        for body in admin.items(kind, selector="app.kubernetes.io/name=tonnage"):
            name = body["metadata"]["name"]
            if name.endswith((f"-{EAST}", f"-{WEST}")):
                admin.delete(kind, name, timeout=None)
    for name in ("tonnage", "tonnage-leader-election"):
        admin.delete("flowschemas", name, timeout=None)
    admin.delete("prioritylevelconfigurations", "tonnage", timeout=None)


@pytest.fixture
def operator(shards: Shards, fleet: UseFleet) -> OperatorProcess:
    """Both, in the place of an operator that is alone."""
    fleet(NODES)
    shards.start_all()
    return shards.operators[EAST]


def of(shard: str | None, manifest: Json) -> Json:
    labels = {} if shard is None else {LABEL_SHARD: shard}
    return manifest | {"metadata": manifest["metadata"] | {"labels": labels}}


def nodes_of(user: User, name: str) -> set[str]:
    """The nodes of the pods that are to stay."""
    return {
        pod["spec"].get("nodeName", "")
        for pod in user.children("pods", name)
        if "deletionTimestamp" not in pod["metadata"]
    }


def test_each_shard_reconciles_its_own_objects_on_its_own_nodes(user: User, shards: Shards) -> None:
    admin, mark = user.admin, user.admin.audit_mark()
    eight_and_more = inference("many", "llama-3.1-8b", replicas=10)
    user.apply(of(EAST, eight_and_more))
    user.apply(of(WEST, inference("one", "llama-3.1-8b")))
    user.apply(of(None, inference("unlabelled", "llama-3.1-8b")))
    user.wait("one", runs_on(f"{WEST}-{H100}"), timeout=SLOW)
    short = has("Ready", "False", "InsufficientGPUs")
    user.wait("many", lambda status: short(status) and status["readyReplicas"] == 8, timeout=SLOW)
    assert nodes_of(user, "many") <= {f"{EAST}-0", ""}, "those that wait have no node"
    assert nodes_of(user, "one") == {f"{WEST}-0"}
    assert "conditions" not in user.status("unlabelled")
    assert shards.touched(EAST, mark) == {"many", "many-h100-sxm-80gb"}
    assert shards.touched(WEST, mark) == {"one", "one-h100-sxm-80gb"}
    for shard in (EAST, WEST):
        pool = f"{shard}-{H100}"
        admin.wait_for("apool", pool, has_one_node, timeout=SLOW, why=f"{pool} to have one node")
        lease = admin.get("leases", f"tonnage-{shard}", account_of(shard).namespace)
        assert lease is not None
        assert denied(admin.requests(account_of(shard).user)) == []


def has_one_node(pool: Json) -> bool:
    """Whether a pool reports one node with eight GPUs."""
    status = pool.get("status") or {}
    return (status.get("nodes"), (status.get("gpus") or {}).get("total")) == (1, 8)


def test_the_api_server_selects_the_objects_of_each_shard(user: User, shards: Shards) -> None:
    kinds = {"inferencedeployments", "nodes", "acceleratorpools", "deployments", "services"}
    for shard in (EAST, WEST):
        asked = [
            (event["objectRef"]["resource"], unquote(event["requestURI"]))
            for event in user.admin.requests(account_of(shard).user, verbs=("list", "watch"))
            if "namespace" not in event["objectRef"]
        ]
        assert {kind for kind, _ in asked} >= kinds
        selector = f"{LABEL_SHARD}={shard}"
        assert [uri for kind, uri in asked if kind in kinds and selector not in uri] == []


def test_a_relabelled_object_changes_shards_with_its_children(user: User, shards: Shards) -> None:
    admin = user.admin
    user.apply(of(EAST, inference("llama", "llama-3.1-8b")))
    user.wait("llama", runs_on(f"{EAST}-{H100}"), timeout=SLOW)
    (before,) = user.children("deployments", "llama")
    user.apply(of(WEST, inference("llama", "llama-3.1-8b")))
    east = shards.operators[EAST]
    admin.until("the east to hear of it", lambda: knows_no_object(east), timeout=SLOW)
    mark = admin.audit_mark()
    admin.until(
        "its pod to run in the west alone",
        lambda: nodes_of(user, "llama") == {f"{WEST}-0"} and len(user.pods("llama")) == 1,
        timeout=SLOW,
    )
    user.wait("llama", runs_on(f"{WEST}-{H100}"), timeout=SLOW)
    (after,) = user.children("deployments", "llama")
    assert after["metadata"]["uid"] == before["metadata"]["uid"], "it was rolled, not made anew"
    (service,) = user.children("services", "llama")
    for child in (after, service):
        assert child["metadata"]["labels"][LABEL_SHARD] == WEST
        assert child["metadata"]["labels"][LABEL_OWNER] == "llama"
    assert shards.touched(EAST, mark) == set()
    assert len(admin.items("deployments", user.namespace)) == 1


def knows_no_object(operator: OperatorProcess) -> bool:
    """Whether the operator has no InferenceDeployment in its store, and works on none."""
    busy = ("workqueue_depth", "workqueue_unfinished_work_seconds")
    return not any(
        value
        for (name, labels), value in read_series(operator.metrics()).items()
        if name in busy
        or (name == "tonnage_known_objects" and ("kind", "inferencedeployments") in labels)
    )


def test_a_killed_shard_is_not_taken_over_by_another(user: User, shards: Shards) -> None:
    mark = user.admin.audit_mark()
    shards.operators[EAST].kill()
    user.apply(of(EAST, inference("left", "llama-3.1-8b")))
    user.apply(of(WEST, inference("served", "llama-3.1-8b")))
    user.wait("served", runs_on(f"{WEST}-{H100}"), timeout=SLOW)
    assert "conditions" not in user.status("left")
    assert shards.touched(WEST, mark) == {"served", "served-h100-sxm-80gb"}
    shards.start_all()
    user.wait("left", runs_on(f"{EAST}-{H100}"), timeout=SLOW)
    assert "left" not in shards.touched(WEST, mark)


def test_requests_have_flow_schemas_of_the_operator(
    user: User, shards: Shards, control_plane: Stack
) -> None:
    rest = Rest(control_plane.access)
    want = {("tonnage", "tonnage"), ("tonnage-leader-election", "leader-election")}
    user.admin.until(
        "requests of both kinds to be dispatched",
        lambda: dispatched(rest) >= want,
        timeout=SLOW,
        describe=lambda: str(dispatched(rest)),
    )


def dispatched(rest: Rest) -> set[tuple[str, str]]:
    """The flow schemas of the requests so far, with their priority levels."""
    lines = rest.raw("GET", "/metrics").decode().splitlines()
    text = "\n".join(line for line in lines if line.startswith(f"{DISPATCHED}{{")) + "\n"
    flows = [dict(labels) for _, labels in read_series(text)]
    return {(flow["flow_schema"], flow["priority_level"]) for flow in flows}
