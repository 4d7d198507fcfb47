"""kopf's own session: the client's credentials, and what the API server let kopf do."""

import aiohttp
import pytest
from multidict import CIMultiDict
from yarl import URL

from tonnage.kube.connection import Credentials
from tonnage.kube.rights import RightsBook
from tonnage.watch.session import note_exchange, open_session


def nobody(_: str) -> None:
    """Is told of a list."""


async def test_kopf_logs_in_as_the_client_does() -> None:
    credentials = Credentials(
        server="https://api.example:6443",
        ca_path=None,
        insecure=False,
        certificate_path=None,
        private_key_path=None,
        authorization="Bearer secret",
    )
    opened = open_session(credentials, RightsBook(), nobody)
    async with opened.aiohttp_session as session:
        assert opened.server == "https://api.example:6443"
        assert session.headers["Authorization"] == "Bearer secret"
        assert session.headers["Accept-Encoding"] == "identity"


class Answer:
    """As much of an answer as is looked at."""

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
def test_what_kopf_may_not_do_is_missing_until_it_may(path: str, want: tuple[str, str]) -> None:
    rights = RightsBook()
    note_exchange(rights, nobody, exchange(path, 403))
    assert rights.missing() == {want: True}
    note_exchange(rights, nobody, exchange(path, 503))
    assert rights.missing() == {want: True}
    note_exchange(rights, nobody, exchange(path, 200))
    assert rights.missing() == {want: False}


@pytest.mark.parametrize("path", ["/api/v1", "/apis", "/apis/apps/v1", "/version"])
def test_discovery_is_nobodys_right(path: str) -> None:
    rights = RightsBook()
    note_exchange(rights, nobody, exchange(path, 403))
    assert rights.missing() == {}


LISTS = {
    "a list": ("/apis/apps/v1/deployments?limit=500", 200, ["deployments"]),
    "a list in a namespace": ("/api/v1/namespaces/chat/pods", 200, ["pods"]),
    "a list that failed": ("/api/v1/pods", 503, []),
    "a watch": ("/api/v1/pods?watch=true&resourceVersion=7", 200, []),
    "discovery": ("/apis/apps/v1", 200, []),
}


@pytest.mark.parametrize(("path", "status", "want"), LISTS.values(), ids=LISTS)
def test_it_is_told_what_was_listed(path: str, status: int, want: list[str]) -> None:
    told: list[str] = []
    note_exchange(RightsBook(), told.append, exchange(path, status))
    assert told == want
