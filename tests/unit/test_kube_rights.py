"""Which right is missing: told by the API server's own words, and by nobody else's."""

import pytest

from tonnage import delays
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, LEASES, NODES, PODS
from tonnage.kube.rights import Right, RightsBook, read_denial
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
            id="a webhook that pretends",
        ),
        pytest.param(
            f'deployments.apps "llama" is forbidden: {WHO} cannot fly resource "deployments"',
            None,
            id="a verb that there is not",
        ),
        pytest.param("", None, id="nothing"),
    ],
)
def test_only_the_authorizer_denies_a_right(message: str, want: Right | None) -> None:
    assert read_denial(message, PATCH) == want


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


def test_a_right_on_the_cluster_says_so_and_how_it_is_granted() -> None:
    right = Request("list", "GET", NODES, None, None).right
    assert str(right) == "list nodes in the whole cluster"
    assert right.remedy == 'add to its role: apiGroups [""], resources ["nodes"], verbs ["list"]'


class Book:
    """A book whose clock stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rights = RightsBook(lambda: self.now)

    def missing(self) -> dict[tuple[str, str], bool]:
        return self.rights.missing()


def test_what_is_allowed_again_is_told_as_such() -> None:
    book = Book()
    assert book.missing() == {}
    book.rights.denied(PATCH)
    assert book.missing() == {("patch", "deployments"): True}
    book.rights.used(PATCH)
    assert book.missing() == {("patch", "deployments"): False}


def test_a_right_in_one_namespace_says_nothing_of_another() -> None:
    book = Book()
    book.rights.denied(PATCH)
    book.rights.used(Right("patch", "apps", "deployments", "search"))
    assert book.missing() == {("patch", "deployments"): True}


def test_what_nobody_asked_for_any_more_is_forgotten() -> None:
    book = Book()
    book.rights.denied(PATCH)
    book.now = delays.FORGET_DENIAL - 1
    assert book.missing() == {("patch", "deployments"): True}
    book.now += 2
    assert book.missing() == {("patch", "deployments"): False}


def test_a_denial_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    book = Book()
    for _ in range(3):
        book.rights.denied(PATCH)
    book.rights.used(PATCH)
    book.rights.used(PATCH)
    first, last = caplog.messages
    assert first.startswith("right missing: the operator may not patch deployments.apps in ")
    assert last == "right granted: the operator may patch deployments.apps in namespace chat"
