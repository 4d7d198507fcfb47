"""What kopf gets of the API server's answers."""

import json

import aiohttp
import pytest

from tests.support.foreign.scripted_server import Answer, serving
from tonnage.kube.protocol import Object
from tonnage.manager.kopf_responses import KopfResponse

OBJECTS = "/apis/tonnage.dev/v1alpha1/inferencedeployments"
DEEP = json.loads("[" * 500 + "]" * 500)


async def read(path: str, status: int, body: Object) -> Object:
    answer = Answer(status, body, {"Content-Type": "application/json"})
    async with (
        serving(answer) as server,
        aiohttp.ClientSession(response_class=KopfResponse) as session,
        session.get(server.url + path) as response,
    ):
        parsed: Object = await response.json()
        return parsed


@pytest.mark.parametrize("kind", ["inferencedeployments", "acceleratorpools"])
async def test_a_list_is_its_version_alone(kind: str) -> None:
    metadata = {"resourceVersion": "7", "remainingItemCount": 4999}
    listed = {
        "kind": "List",
        "metadata": {**metadata, "continue": "token"},
        "items": [{"metadata": {"name": "a"}, "spec": DEEP}],
    }
    assert await read(f"/apis/tonnage.dev/v1alpha1/{kind}?limit=1", 200, listed) == {
        "kind": "List",
        "metadata": {**metadata, "continue": ""},
        "items": [],
    }


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        (OBJECTS, 403, {"kind": "Status", "message": "no", "details": {"kind": "pods"}}),
        ("/apis/tonnage.dev/v1alpha1", 200, {"resources": [{"name": "inferencedeployments"}]}),
    ],
    ids=["a refusal", "discovery"],
)
async def test_another_answer_is_as_the_server_sends_it(
    path: str, status: int, body: Object
) -> None:
    assert await read(path, status, body) == body
