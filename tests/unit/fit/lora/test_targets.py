"""Which layers of vLLM have buffers for the layers that an adapter names."""

from typing import Any

import pytest

from tests.support.engines.subjects import EXPERTS, LLAMA
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.lora.targets import buffer_layers

MIXTRAL: dict[str, Any] = {**LLAMA, **EXPERTS}
NEOX: dict[str, Any] = {
    **LLAMA,
    "architectures": ["GPTNeoXForCausalLM"],
    "model_type": "gpt_neox",
}


@pytest.mark.parametrize(
    ("config", "names", "want"),
    [
        (LLAMA, ["k_proj", "o_proj"], ("o_proj", "qkv_proj")),
        (LLAMA, ["gate_up_proj", "down_proj"], ("down_proj", "gate_up_proj")),
        (LLAMA, ["lm_head"], ("lm_head",)),
        (NEOX, ["query_key_value", "dense"], ("dense", "query_key_value")),
        (MIXTRAL, ["q_proj"], ("qkv_proj",)),
    ],
)
def test_fused_layers_have_buffers_for_each_of_their_parts(
    config: dict[str, Any], names: list[str], want: tuple[str, ...]
) -> None:
    assert buffer_layers(parse_config(config), names) == want


@pytest.mark.parametrize("name", ["down_proj", "w1"])
def test_a_layer_within_experts_has_its_buffers_in_all_of_them(name: str) -> None:
    targets = buffer_layers(parse_config(MIXTRAL), [name])
    assert targets is not None
    assert "experts" in targets


@pytest.mark.parametrize("name", ["another_layer", "w1"])
def test_a_layer_that_is_none_of_the_model_leaves_the_targets_open(name: str) -> None:
    assert buffer_layers(parse_config(LLAMA), ["q_proj", name]) is None
