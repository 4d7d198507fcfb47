"""Foreign text loses its secrets and nothing else."""

import pytest

from tonnage.api.text import is_secret_name, redact, without_credentials

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


@pytest.mark.parametrize(("text", "want"), SECRETS.values(), ids=SECRETS.keys())
def test_text_with_the_form_of_a_secret_is_redacted(text: str, want: str) -> None:
    assert redact(text) == want


HARMLESS = (
    "Free memory on device (1.2/80.0 GiB) is less than desired GPU memory utilization (0.9)",
    "max_num_batched_tokens=8192, time_to_first_token: 420ms, kv cache tokens: 118000",
    "the token in Secret hf, key token, is expired, revoked or mistyped; write a valid one",
    "spec.model.source.huggingFace.tokenSecretRef.name: is required",
    "https://hub.corp/acme/tiny?blobs=true",
    "ask for access with an account that may: admin@corp.example",
    "basic authentication is off, bearer authentication is not",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_text_without_secrets_does_not_change(text: str) -> None:
    assert redact(text) == text


def test_known_secrets_are_redacted_whatever_their_form() -> None:
    assert redact("bad swordfish, worse swordfish2", ["swordfish", "swordfish2"]) == (
        "bad ***, worse ***"
    )


def test_short_known_values_are_not_redacted_within_words() -> None:
    assert redact("the model is on the hub", ["on", ""]) == "the model is on the hub"


def test_without_credentials_removes_the_user_and_password() -> None:
    assert without_credentials("http://u:p@hub/x") == "http://hub/x"
    assert without_credentials("http://hub/x") == "http://hub/x"


def test_names_a_secret_judges_a_variable_by_its_name() -> None:
    assert all(map(is_secret_name, ("HF_TOKEN", "VLLM_API_KEY", "db_password")))
    assert not any(map(is_secret_name, ("HF_HOME", "VLLM_USE_V1", "NCCL_DEBUG")))


def test_hostile_text_takes_linear_time() -> None:
    hostile = ("://" + "a" * 5000) * 20 + "TOKEN" * 20_000 + "eyJ-" * 2_000
    assert len(redact(hostile)) <= len(hostile)
