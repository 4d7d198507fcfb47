"""Settings for LoRA adapters that vLLM refuses, with the flag and what is expected."""

import json
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS
from tests.support.engines.subjects import LLAMA
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.legality.parallelism import check_parallelism
from tonnage.fit.model import EngineOptions, Parallelism

CATALOG = load_catalog()
EXPERTS: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
}
HYBRID: dict[str, Any] = json.loads((CONFIGS / "lfm2-8b-a1b.json").read_text())


def refusal(model: dict[str, Any], tensor: int = 1, **options: Any) -> str | None:
    settings = EngineOptions("v0.32.0", 8192, **{"enable_lora": True, **options})
    release = CATALOG.release("0.32.0")
    illegal = check_parallelism(parse_config(model), Parallelism(tensor), settings, release)
    return None if illegal is None else f"{illegal.rule}: {illegal.message}"


@pytest.mark.parametrize(
    ("model", "tensor", "options", "want"),
    [
        (LLAMA, 1, {"max_lora_rank": 48}, "AdapterRank: --max-lora-rank 48"),
        (LLAMA, 1, {"lora_target_modules": ("nose",)}, "--lora-target-modules nose is no layer"),
        (LLAMA, 1, {"lora_target_modules": ("nose",)}, "expected one of qkv_proj, o_proj,"),
        (
            HYBRID,
            2,
            {"fully_sharded_loras": True, "lora_target_modules": ("in_proj", "out_proj")},
            "AdapterTargets: vLLM has no buffers for in_proj with --fully-sharded-loras",
        ),
        ({**LLAMA, "vocab_size": 262144}, 1, {}, "AdapterVocabulary: a vocabulary of 262144"),
        (LLAMA, 2, {"fully_sharded_loras": True, "max_lora_rank": 1}, "a rank of 1 is not"),
        (
            EXPERTS,
            2,
            {"fully_sharded_loras": True, "enable_expert_parallel": True},
            "AdapterSharding: vLLM does not combine --fully-sharded-loras with expert",
        ),
    ],
)
def test_settings_that_vllm_refuses_name_the_flag(
    model: dict[str, Any], tensor: int, options: dict[str, Any], want: str
) -> None:
    assert want in (refusal(model, tensor, **options) or "")


@pytest.mark.parametrize(
    ("model", "tensor", "options"),
    [
        (LLAMA, 1, {"max_lora_rank": 320}),
        (LLAMA, 8, {"fully_sharded_loras": True, "max_lora_rank": 8}),
        (LLAMA, 1, {"lora_target_modules": ("q_proj", "down_proj", "lm_head")}),
        ({**LLAMA, "vocab_size": 262144}, 1, {"lora_target_modules": ("qkv_proj",)}),
        (EXPERTS, 2, {"enable_expert_parallel": True}),
        (LLAMA, 1, {"enable_lora": False, "max_lora_rank": 48}),
    ],
)
def test_settings_that_vllm_accepts(
    model: dict[str, Any], tensor: int, options: dict[str, Any]
) -> None:
    assert refusal(model, tensor, **options) is None
