"""Repositories that try to exhaust the operator's memory."""

import json

import pytest

from tests.support.foreign.hub_server import HubFile, HubServer, safetensors_file
from tests.support.foreign.tiny_model import CONFIG, REPO, source
from tonnage.api.conditions import Reason
from tonnage.checkpoint.hub import headers as hub_headers
from tonnage.checkpoint.hub import session as hub_session
from tonnage.checkpoint.hub.reader import HubSettings, fetch_checkpoint
from tonnage.checkpoint.lookup import ModelLookupError

MANY = safetensors_file({f"{number:x}": ("U8", [1]) for number in range(3000)})


def refusal_of(hub: HubServer, settings: HubSettings, files: dict[str, HubFile]) -> str:
    hub.add_repo(REPO, {"config.json": CONFIG, **files})
    with pytest.raises(ModelLookupError) as refused:
        fetch_checkpoint(source(), None, settings)
    assert refused.value.reason is Reason.INVALID_MODEL
    return refused.value.message


def test_a_header_too_large_to_parse_is_not_read(hub: HubServer, settings: HubSettings) -> None:
    huge = HubFile((25_000_000).to_bytes(8, "little") + b"{", 30_000_000)
    message = refusal_of(hub, settings, {"model.safetensors": huge})
    assert "its header has 25000008 bytes, at most 4194304 are read" in message
    assert len([asked for asked in hub.requests if "safetensors" in asked]) == 1


def test_a_listing_with_too_many_files_is_refused(
    hub: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_session, "MAX_LISTING_BYTES", 20_000)
    hub.add_repo(REPO, {"config.json": CONFIG, **{f"{n}.txt": MANY for n in range(1_000)}})
    with pytest.raises(ModelLookupError, match="its answer has more than 20000 bytes") as refused:
        fetch_checkpoint(source(), None, settings)
    assert refused.value.reason is Reason.MODEL_SOURCE_UNREACHABLE


def test_headers_are_added_up(
    hub: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_headers, "MAX_HEADERS_BYTES", 10 * len(MANY.start))
    files = {f"model-{number}.safetensors": MANY for number in range(11)}
    assert "headers exceed" in refusal_of(hub, settings, files)
    files.popitem()
    hub.add_repo(REPO, {"config.json": CONFIG, **files})
    assert fetch_checkpoint(source(), None, settings).weights_bytes == 30_000


def test_tensors_are_added_up_over_all_files(
    hub: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_headers, "MAX_TABLE_ROWS", 5999)
    files = {f"model-{number}.safetensors": MANY for number in range(2)}
    assert "more than 5999" in refusal_of(hub, settings, files)


def test_an_index_with_too_many_values_is_not_parsed(hub: HubServer, settings: HubSettings) -> None:
    brackets = HubFile.of('{"weight_map": {}, "x": [' + "{}," * 500_000 + "{}]}")
    message = refusal_of(hub, settings, {"model.safetensors.index.json": brackets})
    assert "more than 500000 values" in message


def test_names_that_repeat_a_layer_prefix_are_parsed_in_linear_time(
    hub: HubServer, settings: HubSettings
) -> None:
    config = json.loads(CONFIG.start) | {"quantization_config": {"quant_method": "fp8"}}
    weights = safetensors_file({"h.0." * 250_000 + ".": ("U8", [1])})
    hub.add_repo(
        REPO, {"config.json": HubFile.of(json.dumps(config)), "model.safetensors": weights}
    )
    assert fetch_checkpoint(source(), None, settings).weights_bytes == 1
