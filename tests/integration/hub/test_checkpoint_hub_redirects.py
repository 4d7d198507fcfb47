"""Which redirects of a Hub the real huggingface_hub may follow."""

from dataclasses import replace

import httpx
import pytest
from huggingface_hub import close_session

from tests.support.foreign.hub_server import Answer, HubServer
from tests.support.foreign.tiny_model import CONFIG, REPO, TOKEN, WEIGHTS, source
from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.checkpoint.hub import session as hub_session
from tonnage.checkpoint.hub.reader import HubSettings, fetch_checkpoint
from tonnage.checkpoint.hub.session import RefusedAnswerError, guard
from tonnage.checkpoint.lookup import ModelLookupError

FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS}
PUBLIC = "http://93.184.216.34"
INWARDS = {
    "the cloud's metadata": "http://169.254.169.254/latest/meta-data/",
    "this machine": "http://127.0.0.1:8001/api/v1/secrets",
    "this machine by name": "http://localhost:8001/",
    "this machine as one number": "http://2130706433/",
    "no address at all": "http://0.0.0.0:10250/pods",
    "the API server": "http://10.96.0.1/api",
    "this machine by IPv6": "http://[::1]:8001/",
    "a link by IPv6": "http://[fe80::1]/",
    "an address of IPv4 in IPv6": "http://[::ffff:169.254.169.254]/",
    "a network of its own by IPv6": "http://[fd00::1]/",
    "addresses of a provider": "http://100.64.0.1/",
}


@pytest.fixture
def public(hub: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch) -> HubSettings:
    """A Hub of the whole world: the server on loopback answers for it as a proxy."""
    monkeypatch.setenv("http_proxy", hub.endpoint)
    monkeypatch.setenv("no_proxy", "")
    close_session()  # which holds the proxies of the time when it was made
    return replace(settings, endpoint=PUBLIC)


@pytest.mark.parametrize("place", INWARDS)
def test_a_public_hub_may_not_redirect_to_a_private_address(
    hub: HubServer, public: HubSettings, place: str
) -> None:
    hub.trouble = Answer(302, {"Location": INWARDS[place]})
    with pytest.raises(ModelLookupError, match="from a narrower network") as refused:
        fetch_checkpoint(source(), None, public)
    assert refused.value.reason is Reason.MODEL_SOURCE_UNREACHABLE
    assert all(asked.startswith(f"GET {PUBLIC}/") for asked in hub.requests), hub.requests


def test_weights_of_a_public_hub_may_not_redirect_to_a_private_address(
    hub: HubServer, public: HubSettings
) -> None:
    hub.add_repo(REPO, FILES)
    hub.redirects["model.safetensors"] = "http://169.254.169.254/latest/meta-data/"
    with pytest.raises(ModelLookupError, match="narrower network"):
        fetch_checkpoint(source(), None, public)
    assert not any("169.254" in asked for asked in hub.requests)


def test_a_public_hub_may_redirect_to_another_public_host(
    hub: HubServer, public: HubSettings
) -> None:
    hub.add_repo(REPO, FILES)
    storage = f"http://151.101.1.1/{REPO}/resolve/main/model.safetensors?signed"
    hub.redirects["model.safetensors"] = storage
    with pytest.raises(ModelLookupError, match=r"narrower|redirect") as refused:
        fetch_checkpoint(source(), None, public)
    # The server answers for that host too, with the same redirect: it is followed until too often.
    assert "narrower" not in refused.value.message
    assert f"GET {storage}" in hub.requests


def test_weights_on_another_host_are_read_without_the_token(
    hub: HubServer, settings: HubSettings
) -> None:
    with HubServer() as storage:
        storage.add_repo(REPO, FILES)
        hub.add_repo(REPO, FILES, gated=True, readers=(TOKEN,))
        path = f"{REPO}/resolve/main/model.safetensors"
        hub.redirects["model.safetensors"] = f"{storage.endpoint}/{path}"
        got = fetch_checkpoint(source(secret=True), TOKEN, settings)
        assert got.weights_bytes == 128_256
        assert (storage.requests, storage.authorizations) == ([f"GET /{path}"], {None})
    assert hub.authorizations == {f"Bearer {TOKEN}"}


def test_a_redirect_loop_is_refused(hub: HubServer, settings: HubSettings) -> None:
    hub.trouble = Answer(302, {"Location": f"{hub.endpoint}/again"})
    with pytest.raises(ModelLookupError, match="cannot be reached"):
        fetch_checkpoint(source(), None, settings)


def test_a_compressed_answer_is_refused(hub: HubServer, settings: HubSettings) -> None:
    hub.trouble = Answer(200, {"Content-Encoding": "gzip"}, b"\x1f\x8b")
    with pytest.raises(ModelLookupError, match="compresses its answer"):
        fetch_checkpoint(source(), None, settings)


@pytest.mark.parametrize("status", [200, 302, 500])
def test_an_endless_answer_is_aborted(
    hub: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(hub_session, "MAX_LISTING_BYTES", 100_000)
    hub.trouble = Answer(status, {"Location": f"{hub.endpoint}/again"}, bytes(200_000))
    with pytest.raises(ModelLookupError, match="more than 100000 bytes"):
        fetch_checkpoint(source(), None, settings)


def test_a_slow_answer_times_out(
    hub: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "HUB_ANSWER", -1.0)
    hub.add_repo(REPO, FILES)
    with pytest.raises(ModelLookupError, match="did not answer in time"):
        fetch_checkpoint(source(), None, settings)


HERE_AND_THERE = {
    "from TLS to none": ("https://93.184.216.34", "http://93.184.216.34/", "without TLS"),
    "from a site to the cloud's metadata": (
        "http://10.0.0.1",
        "http://169.254.169.254/",
        "narrower",
    ),
    "from a site to the same site": ("http://10.0.0.1", "http://10.0.0.2/", None),
    "from a site to the world": ("https://10.0.0.1", "https://93.184.216.34/", None),
    "within one host": ("http://127.0.0.1:1", "http://127.0.0.1:2/", None),
    "to a path": ("http://93.184.216.34", "/elsewhere", None),
    "to a host of this machine": ("https://93.184.216.34", "//127.0.0.1/x", "narrower"),
    "to no URL": ("http://93.184.216.34", "http://[::1/x", None),
}


@pytest.mark.parametrize("case", HERE_AND_THERE)
def test_redirects_never_lead_to_a_narrower_network(case: str) -> None:
    here, there, want = HERE_AND_THERE[case]
    request = httpx.Request("GET", f"{here}/acme/tiny")
    answer = httpx.Response(302, headers={"Location": there}, request=request)
    if want is None:
        guard(answer)
    else:
        with pytest.raises(RefusedAnswerError, match=want):
            guard(answer)
