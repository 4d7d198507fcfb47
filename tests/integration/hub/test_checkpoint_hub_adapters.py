"""The real huggingface_hub reads a LoRA adapter from a small Hub on loopback."""

import json
from dataclasses import replace

import pytest

from tests.support.foreign.hub_server import HubFile, HubServer, safetensors_file
from tests.support.foreign.tiny_model import CONFIG, REPO, source
from tonnage.api.conditions import Reason
from tonnage.checkpoint.hub.errors import ADAPTER_INPUTS
from tonnage.checkpoint.hub.reader import HubSettings, fetch_adapter
from tonnage.checkpoint.lookup import ModelLookupError

ADAPTER = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
WEIGHTS = safetensors_file(
    {
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": ("BF16", [8, 64]),
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight": ("BF16", [64, 8]),
    }
)


def config(**fields: object) -> HubFile:
    return HubFile.of(json.dumps({**ADAPTER, **fields}))


def test_an_adapter_is_read_without_downloading_its_weights(
    hub: HubServer, settings: HubSettings
) -> None:
    commit = hub.add_repo(
        REPO, {"adapter_config.json": config(), "adapter_model.safetensors": WEIGHTS}
    )
    got = fetch_adapter(source(), None, settings)
    assert (got.rank, got.target_modules, got.dtypes) == (8, ("q_proj",), ("BF16",))
    assert (got.weights_bytes, got.revision) == (2 * 2 * 8 * 64, commit)


def test_an_adapter_in_another_format_has_no_size(hub: HubServer, settings: HubSettings) -> None:
    hub.add_repo(REPO, {"adapter_config.json": config(), "adapter_model.bin": WEIGHTS})
    assert fetch_adapter(source(), None, settings).weights_bytes is None


@pytest.mark.parametrize(
    ("files", "want_reason", "want"),
    [
        ({"config.json": CONFIG}, Reason.MODEL_NOT_FOUND, "has no adapter_config.json"),
        (
            {"adapter_config.json": config(use_dora=True)},
            Reason.INVALID_MODEL,
            "use_dora is set: vLLM does not load DoRA",
        ),
        (
            {"adapter_config.json": HubFile.of("x" * 300_000)},
            Reason.INVALID_MODEL,
            "at most 262144 were expected",
        ),
    ],
)
def test_what_is_no_adapter_for_vllm_is_refused(
    hub: HubServer,
    settings: HubSettings,
    files: dict[str, HubFile],
    want_reason: Reason,
    want: str,
) -> None:
    hub.add_repo(REPO, files)
    with pytest.raises(ModelLookupError) as refused:
        fetch_adapter(source(), None, settings)
    assert refused.value.reason is want_reason
    assert want in refused.value.message


@pytest.mark.usefixtures("hub")
def test_an_unknown_repository_names_the_fields_of_adapters(settings: HubSettings) -> None:
    with pytest.raises(ModelLookupError) as refused:
        fetch_adapter(source(), None, replace(settings, inputs=ADAPTER_INPUTS))
    assert refused.value.reason is Reason.MODEL_NOT_FOUND
    assert "check spec.lora.adapters[].source.huggingFace.repo" in refused.value.message
    assert "spec.model" not in refused.value.message
