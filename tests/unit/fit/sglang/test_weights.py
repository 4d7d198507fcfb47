"""The weights under SGLang: vLLM's but for rows on ROCm and the copies of kv_b_proj."""

from dataclasses import replace

import pytest

from accuracy.records import models
from tests.support.engines.shapes import CONFIGS
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint, LatentAttention, ModelShape
from tonnage.checkpoint.shape import parse_config, parse_config_text
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.sglang.weights import sglang_weights
from tonnage.fit.weights.total import weights_by_stage

CATALOG = load_catalog()
RELEASE = CATALOG.release(None)
UNPADDED = replace(RELEASE, row_padding={})
OPTIONS = EngineOptions(RELEASE.version, 4096)

MIXTRAL = parse_config_text((CONFIGS / "mixtral-8x7b.json").read_text())
DEEPSEEK_V3 = parse_config_text((CONFIGS / "deepseek-v3.json").read_text())
DEEPSEEK_V32 = parse_config(models()["deepseek-ai/DeepSeek-V3.2"].config)
DEEPSEEK_V2_LITE = parse_config(models()["deepseek-ai/DeepSeek-V2-Lite-Chat"].config)


def under_sglang(shape: ModelShape, accelerator: str, tensor: int) -> int:
    card = CATALOG.accelerator(accelerator)
    parallelism = Parallelism(tensor)
    (weights,) = sglang_weights(Checkpoint(shape), parallelism, OPTIONS, card, RELEASE)
    return weights


def under_vllm(shape: ModelShape, accelerator: str, tensor: int, *, padded: bool = True) -> int:
    release = RELEASE if padded else UNPADDED
    layout, card = Parallelism(tensor), CATALOG.accelerator(accelerator)
    return weights_by_stage(Checkpoint(shape), layout, OPTIONS, card, release)[0]


def test_rows_of_experts_are_not_padded_on_rocm() -> None:
    assert under_sglang(MIXTRAL, "mi300x", 2) == under_sglang(MIXTRAL, "h100-sxm-80gb", 2)
    assert under_sglang(MIXTRAL, "mi300x", 2) < under_vllm(MIXTRAL, "mi300x", 2)


@pytest.mark.parametrize("tensor", [1, 8])
@pytest.mark.parametrize("accelerator", ["h100-sxm-80gb", "mi300x"])
@pytest.mark.parametrize(
    ("shape", "copied"),
    [
        (DEEPSEEK_V2_LITE, True),  # in 16 bits: vLLM has views
        (DEEPSEEK_V32, True),  # sparse: vLLM has none
        (DEEPSEEK_V3, False),  # quantised and dense: vLLM has copies too
    ],
)
def test_latent_attention_has_copies_of_its_up_projection(
    shape: ModelShape, copied: bool, accelerator: str, tensor: int
) -> None:
    added = under_sglang(shape, accelerator, tensor) - under_vllm(
        shape, accelerator, tensor, padded=False
    )
    latent = [
        mixer
        for kind in shape.layer_order
        for mixer in shape.layer_kinds[kind].mixers
        if isinstance(mixer, LatentAttention)
    ]
    per_rank = sum(
        mixer.heads // tensor * (mixer.qk_nope_head_dim + mixer.v_head_dim) * mixer.kv_lora_rank
        for mixer in latent
    )
    assert per_rank > 0
    assert added == (2 * per_rank if copied else 0)
