"""kopf's session: its credentials, and the permissions and lists that it records."""

import aiohttp
import pytest
from multidict import CIMultiDict
from yarl import URL

from tonnage.kube.connection import Credentials
from tonnage.kube.rights import PermissionTracker
from tonnage.manager.kopf_session import open_session, record_exchange


def ignore_list(_: str) -> None:
    """Ignore a list."""


async def test_kopf_logs_in_as_the_client_does() -> None:
    credentials = Credentials(
        server="https://api.example:6443",
        ca_path=None,
        insecure=False,
        certificate_path=None,
        private_key_path=None,
        authorization="Bearer secret",
    )
    opened = open_session(credentials, PermissionTracker(), ignore_list)
    async with opened.aiohttp_session as session:
        assert opened.server == "https://api.example:6443"
        assert session.headers["Authorization"] == "Bearer secret"
        assert session.headers["Accept-Encoding"] == "identity"


class Answer:
    """A response with a status only."""

    def __init__(self, status: int) -> None:
        self.status = status


def exchange(path: str, status: int) -> aiohttp.TraceRequestEndParams:
    url = URL(f"https://api.example:6443{path}")
    return aiohttp.TraceRequestEndParams("GET", url, CIMultiDict(), Answer(status))


DENIED = {
    "a watch of the core group": ("/api/v1/pods?watch=true", ("watch", "pods")),
    "a watch in a namespace": ("/api/v1/namespaces/chat/pods?watch=true", ("watch", "pods")),
    "a list": (
        "/apis/tonnage.dev/v1alpha1/inferencedeployments?limit=500",
        ("list", "inferencedeployments"),
    ),
    "behind a proxy": ("/k8s/c-1/apis/apps/v1/deployments?watch=true", ("watch", "deployments")),
}


@pytest.mark.parametrize(("path", "want"), DENIED.values(), ids=DENIED)
def test_a_denied_permission_is_missing_until_it_is_granted(
    path: str, want: tuple[str, str]
) -> None:
    rights = PermissionTracker()
    record_exchange(rights, ignore_list, exchange(path, 403))
    assert rights.missing() == {want: True}
    record_exchange(rights, ignore_list, exchange(path, 503))
    assert rights.missing() == {want: True}
    record_exchange(rights, ignore_list, exchange(path, 200))
    assert rights.missing() == {want: False}


@pytest.mark.parametrize("path", ["/api/v1", "/apis", "/apis/apps/v1", "/version"])
def test_discovery_needs_no_permission(path: str) -> None:
    rights = PermissionTracker()
    record_exchange(rights, ignore_list, exchange(path, 403))
    assert rights.missing() == {}


LISTS = {
    "a list": ("/apis/apps/v1/deployments?limit=500", 200, ["deployments"]),
    "a list in a namespace": ("/api/v1/namespaces/chat/pods", 200, ["pods"]),
    "a list that failed": ("/api/v1/pods", 503, []),
    "a watch": ("/api/v1/pods?watch=true&resourceVersion=7", 200, []),
    "discovery": ("/apis/apps/v1", 200, []),
}


@pytest.mark.parametrize(("path", "status", "want"), LISTS.values(), ids=LISTS)
def test_lists_are_reported(path: str, status: int, want: list[str]) -> None:
    listed: list[str] = []
    record_exchange(PermissionTracker(), listed.append, exchange(path, status))
    assert listed == want
