"""Groups whose nodes share memory over NVLink, in a ComputeDomain of NVIDIA's DRA driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.doubles.compute_domain_driver import CHANNEL, DRIVER, ComputeDomainDriver
from e2e.doubles.watch_recorder import WatchRecorder, version_of
from e2e.harness.admin import Admin
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import (
    NAMESPACE,
    ROOT,
    SERVICE_ACCOUNT,
    OperatorProcess,
    RestartedOperator,
)
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import declared
from e2e.journeys.user import User, candidate, condition, has, runs_on
from e2e.models import inference
from tests.support.foreign.hub_server import HubServer

WITHIN = 180
CLIQUE = "nvidia.com/gpu.clique"
RACKS: Json = {
    "groups": [
        {
            "name": rack,
            "count": 2,
            "accelerator": "h100-sxm-80gb",
            "labels": {"team": "racks", CLIQUE: f"{rack}.1"},
        }
        for rack in ("rack-a", "rack-b")
    ]
}
NODES = [f"{group['name']}-{number}" for group in RACKS["groups"] for number in range(2)]
MI300X = {"name": "mi300x", "count": 1, "accelerator": "mi300x"}
POOL = declared("racks", {"team": "racks"}, interconnect={"computeDomain": True})
WHERE_ONE_NODE_WOULD_DO = {"multiNode": {"maxNodes": 2}, "policy": "HighestThroughput"}
RIGHT = "tonnage-compute-domains"


class Permission:
    """The rule of the component compute-domains, next to the shipped role."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def grant(self) -> None:
        """Let the operator make ComputeDomains."""
        path = ROOT / "manifests" / "components" / "compute-domains" / "rule.yaml"
        ((change,), rbac) = yaml.safe_load(path.read_text("utf-8")), "rbac.authorization.k8s.io"
        common = {"apiVersion": f"{rbac}/v1", "metadata": {"name": RIGHT}}
        account = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}
        reference = {"apiGroup": rbac, "kind": "ClusterRole", "name": RIGHT}
        self._admin.apply(
            [
                {**common, "kind": "ClusterRole", "rules": [change["value"]]},
                {
                    **common,
                    "kind": "ClusterRoleBinding",
                    "subjects": [account],
                    "roleRef": reference,
                },
            ]
        )

    def withdraw(self) -> None:
        """Take it back, also from an operator that runs."""
        for kind in ("clusterrolebindings", "clusterroles"):
            self._admin.delete(kind, RIGHT)


@pytest.fixture
def permission(installed: Admin) -> Iterator[Permission]:
    """The permission, granted; withdrawn after the journey."""
    permission = Permission(installed)
    permission.grant()
    yield permission
    permission.withdraw()


@pytest.fixture
def driver(installed: Admin) -> Iterator[ComputeDomainDriver]:
    """The driver on the nodes of both racks."""
    with ComputeDomainDriver(installed, NODES) as driver:
        yield driver


@pytest.fixture
def able_operator(
    control_plane: Stack,
    operator: OperatorProcess,
    leader_worker_sets: LeaderWorkerSetController,
    driver: ComputeDomainDriver,
    permission: Permission,
    hub: HubServer,
    tmp_path: Path,
) -> Iterator[OperatorProcess]:
    """The operator with --compute-domains, in place of the one without."""
    operator.stop()
    environment = {
        "TONNAGE_COMPUTE_DOMAINS": "true",
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "hub"),
    }
    able = RestartedOperator(control_plane, tmp_path / "able", environment=environment)
    able.start()
    yield able
    able.close()


def pods_of_group(user: User) -> list[Json]:
    """The leader and its worker."""
    leaders = user.children("pods", "deepseek")
    return [*leaders, *user.admin.items("pods", selector="tonnage.dev/worker-of=deepseek")]


def start_and_await_reconcile(user: User, operator: OperatorProcess) -> None:
    """Start the operator and wait until it leads, has reconciled the object and is idle."""
    key = f"{user.namespace}/deepseek"

    def reconciled() -> int:
        lines = operator.log_lines()
        return sum(one["message"] == "reconciled" and one["key"] == key for one in lines)

    before = reconciled() if operator.log.exists() else 0
    operator.start()
    user.admin.until("it to be reconciled", lambda: reconciled() > before, timeout=WITHIN)
    user.await_quiet()


def uids(pods: list[Json]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def is_ready(group: list[Json], former: set[str]) -> bool:
    """Whether both pods are ready, and none of the former group is left."""
    ready = [pod for pod in group if condition(pod["status"], "Ready").get("status") == "True"]
    return len(group) == len(ready) == 2 and not uids(group) & former


def test_a_domain_comes_before_its_group_and_goes_after_the_last_pod(
    fleet: UseFleet, declare: Declare, user: User, able_operator: OperatorProcess
) -> None:
    """The operator is killed after each change of the user."""
    fleet({"groups": [*RACKS["groups"], MI300X]})
    declare(POOL)
    domains = WatchRecorder(user.admin, "computedomains", None, user.namespace)
    sets = WatchRecorder(user.admin, "leaderworkersets", None, user.namespace)
    pods = WatchRecorder(user.admin, "pods", None, user.namespace)
    with domains, sets, pods:
        h100 = {"accelerators": ["h100-sxm-80gb"]}
        user.apply(inference("deepseek", "deepseek-v3", placement=h100))
        able_operator.kill()
        able_operator.start()
        status = user.wait_ready("deepseek", timeout=2 * WITHIN)
        (placement,) = status["placements"]
        assert (placement["pool"], placement["nodesPerReplica"]) == ("racks", 2)
        group = pods_of_group(user)
        assert_connected(user, group)
        user.await_quiet()
        mi300x = {"accelerators": ["mi300x"]}
        user.apply(inference("deepseek", "deepseek-v3", placement=mi300x))
        able_operator.kill()
        able_operator.start()
        user.wait("deepseek", runs_on("amd-mi300x"), timeout=3 * WITHIN)
        user.admin.wait_items("computedomains", lambda items: not items, timeout=WITHIN)
        user.admin.wait_items("resourceclaimtemplates", lambda items: not items, timeout=WITHIN)
    assert first(domains, "ADDED") < first(sets, "ADDED") < first(pods, "ADDED")
    asked = next(version_of(one) for one in domains.versions if is_ending(one))
    gone = {
        one["metadata"]["uid"]: version_of(one) for kind, one in pods.events if kind == "DELETED"
    }
    assert max(gone[uid] for uid in uids(group)) < asked


def assert_connected(user: User, group: list[Json]) -> None:
    """Each pod has the channel of its node, and both nodes are in one NVLink domain."""
    (domain,) = user.children("computedomains", "deepseek")
    assert domain["spec"]["numNodes"] == 0
    assert len(group) == 2
    listed = user.admin.wait_items(
        "resourceclaims", lambda claims: len(claims) == 2, why="claims of these pods alone"
    )
    claims = {claim["metadata"]["name"]: claim for claim in listed}
    for pod in group:
        (of_pod,) = pod["spec"]["resourceClaims"]
        assert of_pod["resourceClaimTemplateName"] == domain["metadata"]["name"]
        (made,) = pod["status"]["resourceClaimStatuses"]
        (result,) = claims[made["resourceClaimName"]]["status"]["allocation"]["devices"]["results"]
        assert (result["driver"], result["device"]) == (DRIVER, CHANNEL)
        assert result["pool"] == pod["spec"]["nodeName"]
    nodes = {pod["spec"]["nodeName"] for pod in group}
    assert len(nodes) == 2
    assert len({node.rpartition("-")[0] for node in nodes}) == 1, "both are in one rack"


def first(recorder: WatchRecorder, kind: str) -> int:
    """The version of the first event of this type."""
    return next(version_of(one) for event, one in recorder.events if event == kind)


def is_ending(body: Json) -> bool:
    return "deletionTimestamp" in body["metadata"]


def test_a_group_stays_where_the_permission_is_withdrawn(
    fleet: UseFleet,
    declare: Declare,
    user: User,
    operator: OperatorProcess,
    able_operator: OperatorProcess,
    permission: Permission,
) -> None:
    """While the operator runs, from the start of a killed one, and from one without the flag. One
    node would be enough for this model."""
    fleet(RACKS)
    declare(POOL)
    user.apply(inference("deepseek", "llama-3.3-70b", placement=WHERE_ONE_NODE_WOULD_DO))
    status = user.wait_ready("deepseek", timeout=2 * WITHIN)
    assert status["placements"][0]["nodesPerReplica"] == 2
    user.await_quiet()
    before = uids(pods_of_group(user))
    (domain,) = user.children("computedomains", "deepseek")
    permission.withdraw()
    able_operator.kill()
    start_and_await_reconcile(user, able_operator)
    assert uids(pods_of_group(user)) == before
    able_operator.stop()
    start_and_await_reconcile(user, operator)
    assert uids(pods_of_group(user)) == before
    lost, *_ = user.admin.items("pods", selector="tonnage.dev/worker-of=deepseek")
    user.admin.delete("pods", lost["metadata"]["name"], timeout=None)
    user.admin.until(
        "another group to be ready", lambda: is_ready(pods_of_group(user), before), timeout=WITHIN
    )
    user.await_quiet()
    status = user.wait_ready("deepseek", timeout=WITHIN)
    assert status["placements"][0]["nodesPerReplica"] == 2
    assert_connected(user, pods_of_group(user))
    assert user.children("computedomains", "deepseek") == [domain]
    user.apply(inference("other", "deepseek-v3"))
    status = user.wait("other", has("Placed", "False"), timeout=WITHIN)
    assert candidate(status, "h100-sxm-80gb")["reason"] == "NoInterconnect"
    user.admin.delete("infd", "deepseek")
    user.forget("deepseek")
    user.admin.wait_gone("computedomains", domain["metadata"]["name"], timeout=WITHIN)
