"""What an adapter_config.json says, and which fields vLLM does not load."""

import json
from typing import Any

import pytest

from tonnage.checkpoint.adapter import AdapterFacts, parse_adapter
from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.tensor_table import StoredTensor, TensorTable

PLAIN: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 16,
    "lora_alpha": 32,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "meta-llama/Llama-3.1-8B-Instruct",
    "bias": "none",
    "use_dora": False,
    "layer_replication": None,
    "modules_to_save": None,
    "init_lora_weights": True,
}


def parse(**fields: Any) -> AdapterFacts:
    return parse_adapter(json.dumps({**PLAIN, **fields}))


def test_rank_targets_and_base_model() -> None:
    assert parse() == AdapterFacts(16, ("q_proj", "v_proj"), "meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"rank_pattern": {"q_proj": 64, "v_proj": 8}}, 64),
        ({"rank_pattern": {}}, 16),
        ({"r": 8, "rank_pattern": {"x": 4}}, 8),
    ],
)
def test_the_rank_is_the_largest_of_all_layers(fields: dict[str, Any], want: int) -> None:
    assert parse(**fields).rank == want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, False),
        ({"rank_pattern": {}, "alpha_pattern": {}}, False),
        ({"rank_pattern": {"q_proj": 8}}, True),
        ({"alpha_pattern": {"q_proj": 8}}, True),
    ],
)
def test_layers_with_a_rank_or_scale_of_their_own(fields: dict[str, Any], want: bool) -> None:
    assert parse(**fields).has_patterns == want


@pytest.mark.parametrize("pattern", ["all-linear", ".*self_attn.*"])
def test_a_pattern_names_no_layers(pattern: str) -> None:
    assert parse(target_modules=pattern).target_modules == ()


def test_full_names_count_by_their_last_part() -> None:
    targets = ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"]
    assert parse(target_modules=targets).target_modules == ("q_proj",)


def test_type_and_size_come_from_the_headers() -> None:
    row = StoredTensor("layers.*.q_proj.lora_A.weight", "BF16", (16, 4096), ((0, 31),))
    facts = parse_adapter(json.dumps(PLAIN), TensorTable([row]), "c" * 40)
    assert (facts.dtypes, facts.weights_bytes) == (("BF16",), 32 * 16 * 4096 * 2)
    assert facts.revision == "c" * 40


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"use_dora": True}, "use_dora is set: vLLM does not load DoRA"),
        ({"layer_replication": [[0, 4], [2, 5]]}, "layer_replication is set"),
        ({"lora_bias": True}, "lora_bias is set"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is set"),
        ({"use_qalora": True}, "use_qalora is set"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is set"),
        ({"lora_alpha": None}, "lora_alpha is None: expected a number"),
        ({"lora_alpha": "16"}, "lora_alpha is '16': expected a number"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["embed_tokens"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"r": 0}, "r "),
        ({"r": 1.5}, "r "),
        ({"rank_pattern": {"q_proj": -1}}, "rank_pattern"),
        ({"rank_pattern": [1]}, "rank_pattern"),
        ({"target_modules": None}, "target_modules is missing"),
        ({"target_modules": [{"a": 1}]}, "target_modules"),
    ],
)
def test_what_vllm_does_not_load_is_refused_with_the_field(
    fields: dict[str, Any], want: str
) -> None:
    with pytest.raises(CheckpointError) as refused:
        parse(**fields)
    assert want in str(refused.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[]", "adapter_config.json holds a list"),
        ("{", "adapter_config.json is not valid JSON"),
        ('{"r": 1, "r": 2}', "adapter_config.json has the key 'r' twice"),
        ("[" * 100_000, "nested too deeply"),
        (" " * 300_000, "adapter_config.json is larger than"),
        (b"\xff{}", "adapter_config.json is not valid JSON"),
    ],
)
def test_foreign_bytes_give_one_of_our_errors(text: str | bytes, want: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        parse_adapter(text)
    assert want in str(refused.value)


@pytest.mark.parametrize(
    "others", [{"target_parameters": ["experts.gate_up_proj"]}, {"modules_to_save": ["score"]}]
)
def test_with_other_parts_of_the_model_the_layers_are_not_all(others: dict[str, Any]) -> None:
    assert parse(**others).target_modules == ()


def parse_tensors(*names: str) -> AdapterFacts:
    rows = [StoredTensor(name, "BF16", (16, 4096), ((0, 31),)) for name in names]
    return parse_adapter(json.dumps(PLAIN), TensorTable(rows))


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.lm_head.weight",
        "base_model.model.model.embed_tokens.weight",
        "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta",
        "base_model.model.model.layers.*.self_attn.q_proj.lora_A.default.weight",
        "base_model.model.model.layers.*.self_attn.q_proj.lora_B.bias",
        "base_model.model.model.layers.*.self_attn.q_proj.lora_magnitude_vector",
    ],
)
def test_tensors_that_vllm_does_not_load_are_refused(name: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        parse_tensors("base_model.model.model.layers.*.self_attn.q_proj.lora_A.weight", name)
    assert f"adapter_model.safetensors: tensor {name!r} is not one of a LoRA" in str(refused.value)


def test_tensors_that_vllm_loads_or_leaves_out_are_not() -> None:
    parse_tensors(
        "base_model.model.model.layers.*.mlp.experts.*.gate_proj.lora_A.weight",
        "base_model.model.model.layers.*.mlp.experts.base_layer.lora_B.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A",
        "base_model.model.lm_head.base_layer.weight",
        "base_model.model.score.weight",
        "base_model.model.mtp.layers.*.mixer.q_proj.weight",
    )
