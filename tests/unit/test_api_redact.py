"""What others say is told on without the secrets in it, and otherwise as they said it."""

import pytest

from tonnage.api.redact import names_a_secret, redact, without_credentials

SECRETS = {
    "password in a URL": (
        "cannot reach http://user:pa@ss@hub.corp:8080/x?y=1",
        "cannot reach http://***@hub.corp:8080/x?y=1",
    ),
    "user alone in a URL": ("GET https://tok@hub/", "GET https://***@hub/"),
    "signature of a download": (
        "403 for https://cdn/f?X-Amz-Signature=deadbeef&part=2",
        "403 for https://cdn/f?X-Amz-Signature=***&part=2",
    ),
    "authorization header": (
        "{'Authorization': 'Bearer abcdef.123456'}",
        "{'Authorization': 'Bearer ***'}",
    ),
    "basic authorization": ("Basic dXNlcjpwYXNz refused", "Basic *** refused"),
    "Hugging Face token": ("token hf_abcdefghijkl is expired", "token *** is expired"),
    "service account": (
        "bad eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJr.c2lnbmF0dXJl end",
        "bad *** end",
    ),
    "argument of vLLM": (
        "non-default args: {'api_key': ['swordfish'], 'port': 8000}",
        "non-default args: {'api_key': ['***'], 'port': 8000}",
    ),
    "flag": (
        "unrecognized arguments: --api-key=swordfish",
        "unrecognized arguments: --api-key=***",
    ),
    "environment variable": ("KeyError: MIRROR_TOKEN=swordfish", "KeyError: MIRROR_TOKEN=***"),
}


@pytest.mark.parametrize(("said", "want"), SECRETS.values(), ids=SECRETS.keys())
def test_what_looks_like_a_secret_is_not_told(said: str, want: str) -> None:
    assert redact(said) == want


HARMLESS = (
    "Free memory on device (1.2/80.0 GiB) is less than desired GPU memory utilization (0.9)",
    "max_num_batched_tokens=8192, time_to_first_token: 420ms, kv cache tokens: 118000",
    "the token in Secret hf, key token, is expired, revoked or mistyped; write a valid one",
    "spec.model.source.huggingFace.tokenSecretRef.name: is required",
    "https://hub.corp/acme/tiny?blobs=true",
    "ask for access with an account that may: admin@corp.example",
    "basic authentication is off, bearer authentication is not",
)


@pytest.mark.parametrize("said", HARMLESS)
def test_what_is_no_secret_is_told_as_it_was_said(said: str) -> None:
    assert redact(said) == said


def test_known_secrets_are_not_told_whatever_they_look_like() -> None:
    assert redact("bad swordfish, worse swordfish2", ["swordfish", "swordfish2"]) == (
        "bad ***, worse ***"
    )


def test_words_are_not_torn_apart_by_a_known_value_of_some_letters() -> None:
    assert redact("the model is on the hub", ["on", ""]) == "the model is on the hub"


def test_a_url_is_shown_without_its_password() -> None:
    assert without_credentials("http://u:p@hub/x") == "http://hub/x"
    assert without_credentials("http://hub/x") == "http://hub/x"


def test_variables_that_hold_secrets_are_known_by_their_names() -> None:
    assert all(map(names_a_secret, ("HF_TOKEN", "VLLM_API_KEY", "db_password")))
    assert not any(map(names_a_secret, ("HF_HOME", "VLLM_USE_V1", "NCCL_DEBUG")))


def test_long_text_takes_time_in_proportion() -> None:
    hostile = ("://" + "a" * 5000) * 20 + "TOKEN" * 20_000 + "eyJ-" * 2_000
    assert len(redact(hostile)) <= len(hostile)
