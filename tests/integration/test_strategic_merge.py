"""The merge of pod templates gives what `kubectl patch --type=strategic` gives."""

import json
from typing import Any

import pytest

from e2e.harness.admin import Admin
from e2e.harness.failure import HarnessError
from e2e.harness.rest import ApiError
from tests.support.specs.pod_patches import BASE, CONTAINER_PATCHES, SPEC_PATCHES, random_patch
from tonnage.workloads.pod.strategic_merge import merge_pod_spec

LABELS = {"app": "merged"}
STRATEGIC = "application/strategic-merge-patch+json"
EACH = [
    *({**patch} for patch in SPEC_PATCHES),
    *({"containers": [{"name": "vllm", **patch}]} for patch in CONTAINER_PATCHES),
]


def deployment(namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "merged", "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
        },
    }


class Server:
    """A Deployment with BASE, and what the API server makes of a patch of it or of another spec."""

    def __init__(self, admin: Admin, namespace: str) -> None:
        self._admin, self._namespace = admin, namespace
        self._path = admin.resource("Deployment").path(namespace, "merged")
        self._collection = admin.resource("Deployment").path(namespace)
        admin.apply(deployment(namespace, BASE))

    def patched(self, patch: dict[str, Any]) -> object:
        body = {"spec": {"template": {"spec": patch}}}
        return self._spec("PATCH", self._path, body, content_type=STRATEGIC)

    def patched_by_kubectl(self, patch: dict[str, Any]) -> object:
        body = json.dumps({"spec": {"template": {"spec": patch}}})
        try:
            output = self._admin.kubectl(
                "patch", "deployment", "merged", f"--namespace={self._namespace}",
                "--type=strategic", f"--patch={body}", "--dry-run=server", "--output=json",
            )  # fmt: skip
        except HarnessError:
            return "refused"
        return json.loads(output)["spec"]["template"]["spec"]

    def stored(self, spec: dict[str, Any]) -> object:
        body = deployment(self._namespace, spec)
        body["metadata"]["name"] = "stored"
        return self._spec("POST", self._collection, body)

    def _spec(self, verb: str, path: str, body: dict[str, Any], **how: str) -> object:
        try:
            answer = self._admin.rest.request(verb, path, body, query={"dryRun": "All"}, **how)
        except ApiError as error:
            if error.code in (400, 422):
                return "refused"
            raise
        return answer["spec"]["template"]["spec"]


@pytest.fixture
def server(admin: Admin, namespace: str) -> Server:
    return Server(admin, namespace)


def test_each_patch_gives_what_kubectl_patch_gives(server: Server) -> None:
    refused = 0
    for patch in EACH:
        want = server.patched_by_kubectl(patch)
        assert server.stored(merge_pod_spec(BASE, patch)) == want, patch
        refused += want == "refused"
    assert refused < len(EACH) / 3


def test_patches_together_give_what_the_server_gives(server: Server) -> None:
    refused = 0
    for seed in range(300):
        patch = random_patch(seed)
        want = server.patched(patch)
        assert server.stored(merge_pod_spec(BASE, patch)) == want, (seed, patch)
        refused += want == "refused"
    assert refused < 150, "too few patches are valid"
