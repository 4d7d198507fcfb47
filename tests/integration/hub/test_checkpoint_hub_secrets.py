"""A Hub that repeats a token, and an address with a password: messages contain neither."""

import base64
from dataclasses import replace

import pytest

from tests.support.foreign.hub_server import Answer, HubServer
from tests.support.foreign.tiny_model import CONFIG, REPO, WEIGHTS, source
from tonnage.checkpoint.hub.reader import HubSettings, fetch_checkpoint
from tonnage.checkpoint.lookup import ModelLookupError

SHAPELESS, PASSWORD = "swordfish-of-a-mirror", "sword/fish"


def with_password(settings: HubSettings) -> HubSettings:
    assert settings.endpoint is not None
    return replace(
        settings, endpoint=settings.endpoint.replace("http://", "http://u:sword%2Ffish@")
    )


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
def test_messages_of_a_hub_are_reported_without_tokens_and_passwords(
    hub: HubServer, settings: HubSettings, status: int
) -> None:
    said = f"{SHAPELESS} or u:{PASSWORD} or http://u:swordfish@cdn/f?X-Amz-Signature=swordfish"
    hub.trouble = Answer(status, {"X-Error-Message": said})
    with pytest.raises(ModelLookupError) as caught:
        fetch_checkpoint(source(secret=True), SHAPELESS, with_password(settings))
    for secret in ("swordfish", PASSWORD):
        assert secret not in repr(caught.value)
        assert secret not in caught.value.message
    assert str(settings.endpoint) in caught.value.message


def test_an_unreachable_hub_is_named_without_its_password(
    hub: HubServer, settings: HubSettings
) -> None:
    hub.stop()
    with pytest.raises(ModelLookupError) as caught:
        fetch_checkpoint(source(), None, with_password(settings))
    assert "swordfish" not in caught.value.message
    assert f"{settings.endpoint} cannot be reached" in caught.value.message


def test_the_password_is_used_all_the_same(hub: HubServer, settings: HubSettings) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    header = f"Basic {base64.b64encode(f'u:{PASSWORD}'.encode()).decode()}"
    hub.tokens.add(header)
    fetch_checkpoint(source(), None, with_password(settings))
    assert header in hub.authorizations
