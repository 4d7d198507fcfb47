"""Which right is missing: only the authorizer's own message says so."""

import pytest

from tonnage import delays
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, LEASES, NODES, PODS
from tonnage.kube.rights import PermissionTracker, Right, parse_denial
from tonnage.kube.transport import Request

PATCH = Right("patch", "apps", "deployments", "chat")
WHO = 'User "system:serviceaccount:tonnage-system:tonnage"'


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param(
            f'deployments.apps "llama" is forbidden: {WHO} cannot patch resource "deployments"'
            ' in API group "apps" in the namespace "chat"',
            PATCH,
            id="a patch",
        ),
        pytest.param(
            f'deployments.apps "llama" is forbidden: {WHO} cannot create resource "deployments"'
            ' in API group "apps" in the namespace "chat"',
            Right("create", "apps", "deployments", "chat"),
            id="a patch that would create",
        ),
        pytest.param(
            f'deployments.apps is forbidden: {WHO} cannot patch resource "deployments"'
            ' in API group "apps" at the cluster scope',
            PATCH,
            id="without a name",
        ),
        pytest.param(
            'deployments.apps "llama" is forbidden: exceeded quota: gpus, requested: 8, limited: 4',
            None,
            id="a quota",
        ),
        pytest.param(
            f'admission webhook "x" denied the request: deployments.apps is forbidden: {WHO} cannot'
            ' patch resource "deployments"',
            None,
            id="a webhook that imitates the authorizer",
        ),
        pytest.param(
            f'deployments.apps "llama" is forbidden: {WHO} cannot fly resource "deployments"',
            None,
            id="an unknown verb",
        ),
        pytest.param("", None, id="an empty message"),
    ],
)
def test_only_the_authorizer_denies_a_right(message: str, want: Right | None) -> None:
    assert parse_denial(message, PATCH) == want


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        (Request("get", "GET", DEPLOYMENTS, "chat", "llama"), "get deployments.apps"),
        (Request("list", "GET", PODS, "chat", None), "list pods"),
        (Request("pod_log", "GET", PODS, "chat", "p", "log"), "get pods/log"),
        (Request("create", "POST", LEASES, "chat", None), "create leases.coordination.k8s.io"),
        (Request("update", "PUT", LEASES, "chat", "l"), "update leases.coordination.k8s.io"),
        (Request("delete", "DELETE", DEPLOYMENTS, "chat", "d"), "delete deployments.apps"),
        (
            Request("apply_status", "PATCH", INFERENCE_DEPLOYMENTS, "chat", "l", "status"),
            "patch inferencedeployments/status.tonnage.dev",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_needs_a_right(request_: Request, want: str) -> None:
    assert str(request_.right) == f"{want} in namespace chat"


def test_a_cluster_wide_right_names_its_scope_and_the_rule_that_grants_it() -> None:
    right = Request("list", "GET", NODES, None, None).right
    assert str(right) == "list nodes in the whole cluster"
    assert right.remedy == 'add to its role: apiGroups [""], resources ["nodes"], verbs ["list"]'


class Tracked:
    """Rights under a clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rights = PermissionTracker(lambda: self.now)

    def missing(self) -> dict[tuple[str, str], bool]:
        return self.rights.missing()


def test_a_right_that_is_allowed_again_is_not_missing() -> None:
    tracked = Tracked()
    assert tracked.missing() == {}
    tracked.rights.denied(PATCH)
    assert tracked.missing() == {("patch", "deployments"): True}
    tracked.rights.used(PATCH)
    assert tracked.missing() == {("patch", "deployments"): False}


def test_a_right_in_one_namespace_does_not_count_in_another() -> None:
    tracked = Tracked()
    tracked.rights.denied(PATCH)
    tracked.rights.used(Right("patch", "apps", "deployments", "search"))
    assert tracked.missing() == {("patch", "deployments"): True}


def test_an_old_denial_is_forgotten() -> None:
    tracked = Tracked()
    tracked.rights.denied(PATCH)
    tracked.now = delays.FORGET_DENIAL - 1
    assert tracked.missing() == {("patch", "deployments"): True}
    tracked.now += 2
    assert tracked.missing() == {("patch", "deployments"): False}


def test_a_denial_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tracked = Tracked()
    for _ in range(3):
        tracked.rights.denied(PATCH)
    tracked.rights.used(PATCH)
    tracked.rights.used(PATCH)
    first, last = caplog.messages
    assert first.startswith("right missing: the operator may not patch deployments.apps in ")
    assert last == "right granted: the operator may patch deployments.apps in namespace chat"


def test_a_secret_that_no_role_names_is_no_right_that_the_operator_lacks() -> None:
    tracker = PermissionTracker()
    tracker.denied(Right("get", "", "secrets", "chat"))
    assert tracker.missing() == {}
