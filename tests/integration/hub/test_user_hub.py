"""Which Hub gets the token of the user who runs `tonnage plan`."""

import pytest

from tests.support.foreign.hub_server import HubServer
from tests.support.foreign.tiny_model import CONFIG, REPO, WEIGHTS, source
from tonnage.checkpoint.model import Checkpoint
from tonnage.cli.sources.user_hub import make_user_hub_lookup

SAVED = "hf_TokenOfThisMachine"


@pytest.mark.parametrize(
    ("is_given", "want"), [(True, f"Bearer {SAVED}"), (False, None)], ids=["given", "from the dump"]
)
def test_the_saved_token_is_sent_only_to_a_hub_that_the_user_named(
    hub: HubServer, is_given: bool, want: str | None
) -> None:
    hub.tokens.add(SAVED)
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    ask = make_user_hub_lookup(hub.endpoint if is_given else None, hub.endpoint)
    assert isinstance(ask.model(source(), None), Checkpoint)
    assert hub.authorizations == {want}
