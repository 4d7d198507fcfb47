"""Reviews of tokens on the wire: what the API server is asked, and what its answers mean."""

from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from tests.support.foreign.scripted_server import Answer, ScriptedServer, serving
from tonnage.kube.access_review import AioAccessReviewer, Verdict
from tonnage.kube.protocol import ForbiddenError, TransientError
from tonnage.kube.rights import PermissionTracker
from tonnage.kube.transport import Transport

USER = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u",
    "groups": ["system:serviceaccounts"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}
AUTHENTICATED = Answer(201, {"status": {"authenticated": True, "user": USER}})


async def review(*answers: Answer) -> tuple[Verdict, ScriptedServer]:
    async with serving(*answers) as server, ApiClient(Configuration(host=server.url)) as client:
        reviewer = AioAccessReviewer(Transport(client, lambda *_: None))
        return await reviewer.review("token", "/metrics"), server


async def test_the_user_of_the_token_is_asked_about() -> None:
    verdict, server = await review(AUTHENTICATED, Answer(201, {"status": {"allowed": True}}))
    assert verdict is Verdict.ALLOWED
    token, access = server.asked
    assert token.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert token.body["spec"] == {"token": "token"}
    assert access.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert access.body["spec"] == {
        "user": USER["username"],
        "uid": "u",
        "groups": USER["groups"],
        "extra": USER["extra"],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize(
    "status", [{}, None, {"authenticated": False}, {"authenticated": "true", "user": USER}]
)
async def test_a_token_that_is_not_authenticated_is_of_no_user(status: Any) -> None:
    verdict, server = await review(Answer(201, {"status": status}))
    assert verdict is Verdict.UNAUTHENTICATED
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [{}, None, {"allowed": False}, {"allowed": "true"}])
async def test_what_is_not_allowed_is_forbidden(status: Any) -> None:
    verdict, _ = await review(AUTHENTICATED, Answer(201, {"status": status}))
    assert verdict is Verdict.FORBIDDEN


async def test_an_api_server_that_does_not_answer_says_nothing() -> None:
    with pytest.raises(TransientError):
        await review(Answer(500))


async def test_a_missing_right_to_review_is_named() -> None:
    message = (
        'tokenreviews.authentication.k8s.io is forbidden: User "system:serviceaccount:a:b" cannot'
        ' create resource "tokenreviews" in API group "authentication.k8s.io" at the cluster scope'
    )
    rights = PermissionTracker()
    denied = Answer(403, {"kind": "Status", "message": message})
    async with serving(denied) as server, ApiClient(Configuration(host=server.url)) as client:
        reviewer = AioAccessReviewer(Transport(client, lambda *_: None, rights))
        with pytest.raises(ForbiddenError):
            await reviewer.review("token", "/metrics")
    assert rights.missing() == {("create", "tokenreviews"): True}
