"""How the client explains errors that the API server's own message does not."""

import json

import pytest

from tonnage.kube.protocol import TransientError
from tonnage.kube.responses import parse_error
from tonnage.kube.rights import Right

REQUIRED = Right("patch", "tonnage.dev", "inferencedeployments/status", "chat")
WHAT = "apply_status InferenceDeployment chat/llama"


def error_message(message):
    body = json.dumps({"kind": "Status", "message": message}).encode()
    error = parse_error(WHAT, REQUIRED, 500, {}, body)
    assert isinstance(error, TransientError)
    return str(error)


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("tonnage.dev/v1alpha1, Kind=InferenceDeployment", "older than this operator, apply"),
        ("apps/v1, Kind=Deployment", "500: failed to create"),
    ],
)
def test_the_error_for_a_field_that_an_older_crd_lacks_says_what_to_do(kind, want):
    server_message = (
        f"failed to create typed patch object (chat/llama; {kind}): errors:\n"
        "  .status.candidates[0].capacity: field not declared in schema"
    )
    message = error_message(server_message)
    assert want in message
    assert server_message in message
    assert ("tonnage crds" in message) == ("tonnage.dev" in kind)
