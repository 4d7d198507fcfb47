"""What an answer of the API server is taken for, where its own words do not suffice."""

import json

import pytest

from tonnage.kube.answers import error_for
from tonnage.kube.protocol import TransientError
from tonnage.kube.rights import Right

ASKED = Right("patch", "tonnage.dev", "inferencedeployments/status", "chat")
WHAT = "apply_status InferenceDeployment chat/llama"


def told(message):
    body = json.dumps({"kind": "Status", "message": message}).encode()
    error = error_for(WHAT, ASKED, 500, {}, body)
    assert isinstance(error, TransientError)
    return str(error)


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("tonnage.dev/v1alpha1, Kind=InferenceDeployment", "older than this operator, apply"),
        ("apps/v1, Kind=Deployment", "500: failed to create"),
    ],
)
def test_a_field_that_an_older_crd_does_not_have_is_told_with_what_to_do(kind, want):
    words = (
        f"failed to create typed patch object (chat/llama; {kind}): errors:\n"
        "  .status.candidates[0].room: field not declared in schema"
    )
    message = told(words)
    assert want in message
    assert words in message
    assert ("tonnage crds" in message) == ("tonnage.dev" in kind)
