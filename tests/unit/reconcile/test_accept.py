"""Which specs can be planned: maxModelLen must not exceed what the release takes."""

import json

import pytest

from tests.support.engines.shapes import load_shape
from tests.support.fleets.placing import spec_of
from tests.support.specs.observed import observed
from tonnage.api.conditions import Reason
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.reconcile.accept import Accepted, Refused, accept

CATALOG = load_catalog()
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def accepted(
    length: int, version: str, vllm: dict[str, object] | None = None, **config: object
) -> Accepted | Refused:
    shape = load_shape("llama-3.1-8b", **config)
    engine = {"vllm": {"version": version, **(vllm or {})}}
    spec = spec_of(workload={"maxModelLen": length}, engine=engine)
    return accept(observed(spec, model=Checkpoint(shape)), CATALOG)


@pytest.mark.parametrize(
    ("length", "version", "config"),
    [
        (131072, "v0.32.0", {}),
        (131072, "v0.29.0", {"max_position_embeddings": 40960, "rope_scaling": YARN}),
        (16384, "v0.32.0", {"max_position_embeddings": 8192,
                            "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ],
)  # fmt: skip
def test_a_max_model_len_that_vllm_takes_is_accepted(
    length: int, version: str, config: dict[str, object]
) -> None:
    assert isinstance(accepted(length, version, **config), Accepted)


@pytest.mark.parametrize(
    ("length", "version", "config"),
    [
        (131073, "v0.32.0", {}),
        (131072, "v0.30.0", {"max_position_embeddings": 40960, "rope_scaling": YARN}),
    ],
)
def test_a_longer_max_model_len_is_refused_with_the_field_and_both_lengths(
    length: int, version: str, config: dict[str, object]
) -> None:
    refused = accepted(length, version, **config)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.INVALID_SPEC
    assert refused.message.startswith(
        f"spec.workload.maxModelLen: {length} tokens is more than the"
    )


LONGER = json.dumps({"rope_parameters": {**YARN, "factor": 8.0}, "max_position_embeddings": 262144})


@pytest.mark.parametrize(
    ("version", "vllm"),
    [
        ("v0.32.0", {"extraArgs": [f"--hf-overrides={LONGER}"]}),
        ("v0.29.0", {"extraArgs": ["--rope-scaling", json.dumps({**YARN, "factor": 8.0})]}),
        ("v0.32.0", {"env": [{"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": "1"}]}),
    ],
)
def test_a_user_stretches_the_context(version: str, vllm: dict[str, object]) -> None:
    assert isinstance(accepted(262144, version), Refused)
    assert isinstance(accepted(262144, version, vllm), Accepted)


def test_a_stretched_context_is_a_larger_table() -> None:
    stretched = accepted(262144, "v0.32.0", {"extraArgs": [f"--hf-overrides={LONGER}"]})
    assert isinstance(stretched, Accepted)
    assert {cache.positions for cache in stretched.checkpoint.shape.rope_caches} == {262144}


def test_overrides_that_make_no_sense_are_refused_with_the_field() -> None:
    overrides = json.dumps({"max_position_embeddings": -1})
    refused = accepted(8192, "v0.32.0", {"extraArgs": [f"--hf-overrides={overrides}"]})
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.INVALID_SPEC
    assert refused.message.startswith("spec.engine.vllm.extraArgs: with the overrides of config")
    assert "max_position_embeddings" in refused.message


@pytest.mark.parametrize(("name", "is_refused"), [("llama", True), ("sql", False)])
def test_an_adapter_has_not_the_name_that_the_model_has_by_default(
    name: str, is_refused: bool
) -> None:
    source = {"huggingFace": {"repo": "acme/sql"}}
    spec = spec_of(lora={"adapters": [{"name": name, "source": source, "rank": 16}]})
    assert spec.model.name is None
    observation = observed(spec, model=Checkpoint(load_shape("llama-3.1-8b")))
    assert observation.key.name == "llama"
    refused = accept(observation, CATALOG)
    assert isinstance(refused, Refused) == is_refused
    if isinstance(refused, Refused):
        assert refused.message.startswith("spec.lora.adapters[0].name: llama is the name")
