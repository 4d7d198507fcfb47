"""A Hub that is down, or refuses the token, while the operator starts again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference, token_secret
from tests.support.foreign.hub_server import Answer, HubServer
from tests.support.foreign.tiny_model import CONFIG, SHARDS, TOKEN

GATED = "acme/kept"


@pytest.fixture
def gated(hub: HubServer) -> Iterator[HubServer]:
    """The Hub with a gated model; afterwards it answers again."""
    hub.add_repo(GATED, {"config.json": CONFIG, **SHARDS}, gated=True, readers=(TOKEN,))
    yield hub
    hub.trouble = None
    hub.tokens.add(TOKEN)


def kept(replicas: int) -> Json:
    source = {"huggingFace": {"repo": GATED, "tokenSecretRef": {"name": "hf"}}}
    workload = {"maxModelLen": 2048}
    return inference("kept", model={"source": source}, workload=workload, replicas=replicas)


def go_down(hub: HubServer) -> None:
    hub.trouble = Answer(503)


def revoke_token(hub: HubServer) -> None:
    hub.tokens.discard(TOKEN)
    hub.repos[GATED].readers.clear()


@pytest.mark.parametrize(
    ("fail", "want_message"),
    [(go_down, "answered 503"), (revoke_token, "the token in Secret hf")],
    ids=["down", "revoked"],
)
def test_replicas_are_added_and_replaced_without_the_hub_after_a_restart(
    fleet: UseFleet,
    user: User,
    gated: HubServer,
    operator: OperatorProcess,
    fail: Callable[[HubServer], None],
    want_message: str,
) -> None:
    fleet("tiny")
    user.admin.apply(token_secret("hf", TOKEN))
    user.apply(kept(replicas=1))
    revision = user.wait_ready("kept")["model"]["revision"]
    operator.stop()
    fail(gated)
    operator.start()
    status = user.wait("kept", has("Accepted", "True", "ModelNotConfirmed"))
    message = condition(status, "Accepted")["message"]
    assert f"as of commit {revision}" in message
    assert want_message in message
    assert has("Ready", "True", "ReplicasReady")(status)

    user.apply(kept(replicas=2))
    status = user.wait_ready("kept")
    assert status["readyReplicas"] == 2
    (former,) = user.children("deployments", "kept")
    name = former["metadata"]["name"]
    # Its end is not awaited: the next one has the same name.
    user.admin.delete("deployments", name, timeout=None)

    def is_replaced(deployment: Json) -> bool:
        is_new = deployment["metadata"]["uid"] != former["metadata"]["uid"]
        return bool(is_new and deployment.get("status", {}).get("readyReplicas") == 2)

    user.admin.wait_for(
        "deployments", name, is_replaced, why="the operator to replace the Deployment"
    )
    assert user.wait_ready("kept")["readyReplicas"] == 2
