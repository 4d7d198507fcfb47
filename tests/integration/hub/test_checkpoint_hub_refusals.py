"""Every way in which a Hub can fail to describe a model gets its own error, with what to do."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.support.foreign.hub_server import Answer, HubFile, HubServer, safetensors_index
from tests.support.foreign.tiny_model import CONFIG, REPO, SHARDS, STRANGER, TOKEN, WEIGHTS, source
from tonnage.api.conditions import MAX_MESSAGE_BYTES, Reason
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.hub.reader import HubSettings, fetch_checkpoint
from tonnage.checkpoint.lookup import ModelLookupError


def fetch_error(
    settings: HubSettings, wanted: HuggingFaceSource | None = None, token: str | None = None
) -> ModelLookupError:
    with pytest.raises(ModelLookupError) as caught:
        fetch_checkpoint(wanted or source(secret=token is not None), token, settings)
    error = caught.value
    assert len(error.message.encode()) <= MAX_MESSAGE_BYTES
    assert "\n" not in error.message
    assert TOKEN not in repr(error)
    assert STRANGER not in repr(error)
    return error


REFUSALS: list[Any] = [
    pytest.param(
        {"token": None},
        Reason.MODEL_NOT_FOUND,
        ["acme/tiny does not exist on http://", "or it is private", "tokenSecretRef"],
        id="no such repository, or private, without a token",
    ),
    pytest.param(
        {"token": STRANGER},
        Reason.MODEL_NOT_FOUND,
        ["does not exist", "the token in Secret hf, key token may not see it"],
        id="no such repository, or private, with a token",
    ),
    pytest.param(
        {"token": "hf_expired"},
        Reason.MODEL_ACCESS_DENIED,
        ["refused the token in Secret hf, key token", "write a valid one"],
        id="a token that is none any more",
    ),
    pytest.param(
        {"token": None, "gated": True},
        Reason.MODEL_ACCESS_DENIED,
        ["acme/tiny is gated", "/acme/tiny, and set", "tokenSecretRef"],
        id="gated, without a token",
    ),
    pytest.param(
        {"token": STRANGER, "gated": True},
        Reason.MODEL_ACCESS_DENIED,
        ["is gated and the token in Secret hf, key token has no access", "fine-grained"],
        id="gated, with a token that has no access",
    ),
    pytest.param(
        {"token": None, "open": True, "revision": "v9"},
        Reason.MODEL_NOT_FOUND,
        ["has no revision 'v9'", "spec.model.source.huggingFace.revision"],
        id="no such revision",
    ),
]


@pytest.mark.parametrize(("case", "want_reason", "want_words"), REFUSALS)
def test_each_refusal_has_its_own_error(
    hub: HubServer,
    settings: HubSettings,
    case: dict[str, Any],
    want_reason: Reason,
    want_words: list[str],
) -> None:
    hub.tokens.add(STRANGER)
    if "gated" in case or "open" in case:
        hub.add_repo(REPO, {"config.json": CONFIG}, gated=case.get("gated", False))
    else:
        hub.add_repo(REPO, {"config.json": CONFIG}, private=True, readers=(TOKEN,))
    wanted = source(revision=case.get("revision", "main"), secret=case["token"] is not None)
    error = fetch_error(settings, wanted, case["token"])
    assert error.reason is want_reason
    for words in want_words:
        assert words in error.message


@pytest.mark.parametrize(
    ("token", "gated", "want_reason"),
    [
        pytest.param(None, False, Reason.MODEL_NOT_FOUND, id="401 without a token"),
        pytest.param(STRANGER, False, Reason.MODEL_NOT_FOUND, id="404 with a token"),
        pytest.param(STRANGER, True, Reason.MODEL_ACCESS_DENIED, id="403"),
    ],
)
def test_a_mirror_that_sends_bare_statuses_is_understood(
    hub: HubServer,
    settings: HubSettings,
    token: str | None,
    gated: bool,
    want_reason: Reason,
) -> None:
    hub.error_codes = False
    hub.tokens.add(STRANGER)
    if gated:
        hub.add_repo(REPO, {"config.json": CONFIG}, gated=True)
    assert fetch_error(settings, token=token).reason is want_reason


@pytest.mark.parametrize(
    ("answer", "want_words", "want_retry_after"),
    [
        pytest.param(
            Answer(429, {"Retry-After": "77"}),
            ["429", "wait 77 s", "tokenSecretRef"],
            77,
            id="a rate limit that says for how long",
        ),
        pytest.param(
            Answer(429, {"ratelimit": '"api";r=0;t=55'}),
            ["wait 55 s"],
            55,
            id="the Hub's own headers",
        ),
        pytest.param(
            Answer(429, {"Retry-After": "9" * 9}), ["429"], 3600, id="a wait of thirty years"
        ),
        pytest.param(Answer(429, {"Retry-After": "soon"}), ["429"], None, id="a wait that is none"),
        pytest.param(
            Answer(500, {"X-Error-Message": "disk\n on  fire \x1b[31m"}),
            ["answered 500 (disk on fire [31m)"],
            None,
            id="an error of the server",
        ),
        pytest.param(
            Answer(502, {}, b"<html>" + b"x" * 100_000), ["answered 502"], None, id="a proxy's page"
        ),
        pytest.param(Answer(503, {"Retry-After": "5"}), ["503"], 5, id="down for maintenance"),
        pytest.param(
            Answer(200, {}, b"<html>"),
            ["not answer like a Hub", "HF_ENDPOINT"],
            None,
            id="a portal's page",
        ),
        pytest.param(
            Answer(200, {}, b"[]"), ["not answer like a Hub"], None, id="JSON of another kind"
        ),
        pytest.param(
            Answer(200, {}, b'{"id": "x"}'),
            ["its listing has no commit"],
            None,
            id="a listing without commit",
        ),
        pytest.param(
            Answer(200, {}, b'{"id": "x", "sha": "../../etc", "siblings": []}'),
            ["its listing has no commit"],
            None,
            id="a commit that leads out of the cache",
        ),
        pytest.param(
            Answer(200, {}, b'{"id": "x", "siblings": [7]}'),
            ["listing is unreadable"],
            None,
            id="junk in the listing",
        ),
        pytest.param(
            Answer(200, {}, b"[" * 100_000), ["listing is unreadable"], None, id="JSON without end"
        ),
        pytest.param(
            Answer(302, {"Location": "/around"}),
            ["TooManyRedirects"],
            None,
            id="a redirect to itself",
        ),
    ],
)
def test_a_network_error_is_no_answer_about_the_model(
    hub: HubServer,
    settings: HubSettings,
    answer: Answer,
    want_words: list[str],
    want_retry_after: float | None,
) -> None:
    hub.trouble = answer
    error = fetch_error(settings)
    assert error.reason is Reason.MODEL_SOURCE_UNREACHABLE
    assert error.retry_after_seconds == want_retry_after
    for words in want_words:
        assert words in error.message


def test_nothing_is_retried_here(hub: HubServer, settings: HubSettings) -> None:
    hub.trouble = Answer(503, {"Retry-After": "1000"})
    fetch_error(settings)
    assert len(hub.requests) == 1


def test_an_unreachable_hub_is_named(hub: HubServer, settings: HubSettings) -> None:
    hub.stop()
    error = fetch_error(settings)
    assert error.reason is Reason.MODEL_SOURCE_UNREACHABLE
    assert f"{hub.endpoint} cannot be reached (ConnectError: " in error.message


@pytest.mark.parametrize("endpoint", ["not a url", "http://[::1", "ftp://hub", ""])
def test_an_endpoint_that_is_not_a_url_is_named(settings: HubSettings, endpoint: str) -> None:
    wrong = replace(settings, endpoint=endpoint or "http://")
    assert fetch_error(wrong).reason is Reason.MODEL_SOURCE_UNREACHABLE


def test_a_silent_hub_times_out(hub: HubServer, settings: HubSettings) -> None:
    hub.stall()
    error = fetch_error(replace(settings, request_timeout_seconds=0.05))
    assert error.reason is Reason.MODEL_SOURCE_UNREACHABLE
    assert "did not answer in time (limit 0.05 s" in error.message


def test_a_whole_lookup_has_a_timeout(hub: HubServer, settings: HubSettings) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    error = fetch_error(replace(settings, lookup_timeout_seconds=0.0))
    assert "did not answer in time" in error.message


def test_offline_mode_is_named(
    hub: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    error = fetch_error(settings)
    assert error.reason is Reason.MODEL_SOURCE_UNREACHABLE
    assert "HF_HUB_OFFLINE is set" in error.message
    assert hub.requests == []


@pytest.mark.parametrize(
    ("files", "want_reason", "want_words"),
    [
        pytest.param(
            {"model.gguf": HubFile.of(b"")},
            Reason.MODEL_NOT_FOUND,
            ["has no config.json", "adapter or a GGUF file"],
            id="no config.json",
        ),
        pytest.param(
            {"config.json": HubFile.of("{nope")},
            Reason.INVALID_MODEL,
            ["not valid JSON"],
            id="a config.json that is no JSON",
        ),
        pytest.param(
            {"config.json": HubFile.of("{}")},
            Reason.INVALID_MODEL,
            ["architectures is missing"],
            id="a config.json without architecture",
        ),
        pytest.param(
            {"config.json": HubFile.of('{"architectures": ["BertModel"], "model_type": "bert"}')},
            Reason.UNSUPPORTED_ARCHITECTURE,
            ["BertModel"],
            id="no decoder",
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors": HubFile.of("<!DOCTYPE html>")},
            Reason.INVALID_MODEL,
            ["model.safetensors: ", "not a safetensors file"],
            id="weights that are a page",
        ),
        pytest.param(
            {
                "config.json": CONFIG,
                "model.safetensors": HubFile((10**8).to_bytes(8, "little"), 10**9),
            },
            Reason.INVALID_MODEL,
            ["at most 4194304 are read here"],
            id="a header of 100 MB",
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors": HubFile(WEIGHTS.start, WEIGHTS.size - 1)},
            Reason.INVALID_MODEL,
            ["cut off or damaged"],
            id="weights cut off",
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors.index.json": HubFile.of("[]")},
            Reason.INVALID_MODEL,
            ["safetensors index"],
            id="an index that is a list",
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors.index.json": safetensors_index(SHARDS)},
            Reason.INVALID_MODEL,
            ["lists a file that it does not have"],
            id="shards that are missing",
        ),
    ],
)
def test_a_repository_that_cannot_be_used_says_why(
    hub: HubServer,
    settings: HubSettings,
    files: dict[str, HubFile],
    want_reason: Reason,
    want_words: list[str],
) -> None:
    hub.add_repo(REPO, files)
    error = fetch_error(settings)
    assert error.reason is want_reason
    assert error.message.startswith("repository acme/tiny at revision main")
    for words in want_words:
        assert words in error.message


@pytest.mark.parametrize(
    ("sizes", "want_requests", "want_words"),
    [
        pytest.param(True, 1, "has 5000000000 bytes", id="the listing tells, nothing is fetched"),
        pytest.param(False, 2, "has more than 4194304 bytes", id="the reading stops at the limit"),
    ],
)
def test_a_huge_config_is_not_downloaded(
    hub: HubServer, settings: HubSettings, sizes: bool, want_requests: int, want_words: str
) -> None:
    hub.sizes = sizes
    hub.add_repo(REPO, {"config.json": HubFile(b"{", 5 * 10**9)})
    assert want_words in fetch_error(settings).message
    assert len(hub.requests) == want_requests


def test_a_file_that_vanished_after_the_listing_is_named(
    hub: HubServer, settings: HubSettings
) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG})
    hub.missing_files.add("config.json")
    assert "is an upload under way?" in fetch_error(settings).message


@pytest.mark.parametrize("repo", ["a--b", "acme/tiny.git", "acme/x..y"])
def test_a_name_that_no_repository_has_is_refused_without_asking(
    hub: HubServer, settings: HubSettings, repo: str
) -> None:
    error = fetch_error(settings, source(repo))
    assert error.reason is Reason.INVALID_SPEC
    assert "spec.model.source.huggingFace.repo" in error.message
    assert hub.requests == []


@pytest.mark.parametrize("token", ["hf_two words", "hf_line\nbreak", "hf_ümlaut", "hf_\x00"])
def test_a_token_that_no_header_can_hold_is_refused_unquoted(
    hub: HubServer, settings: HubSettings, token: str
) -> None:
    error = fetch_error(settings, token=token)
    assert error.reason is Reason.MODEL_ACCESS_DENIED
    assert "Secret hf, key token" in error.message
    assert token not in error.message
    assert hub.requests == []


def test_the_token_is_not_logged(
    hub: HubServer, settings: HubSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("huggingface_hub").setLevel(logging.DEBUG)
    hub.add_repo(REPO, {"config.json": CONFIG}, private=True, readers=(TOKEN,))
    fetch_checkpoint(source(secret=True), TOKEN, settings)
    hub.trouble = Answer(500)
    fetch_error(settings, token=TOKEN)
    assert TOKEN not in caplog.text
