"""Buffers for LoRA adapters, against figures that follow from vLLM's source."""

from typing import Any

import pytest

from tests.support.subjects import LLAMA
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.activation.graphs import graph_bytes
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.adapters import adapter_bytes
from tonnage.fit.weights.matrix import Sharding
from tonnage.fit.weights.total import weights_by_stage

CATALOG = load_catalog()
ACCELERATOR, RELEASE = CATALOG.accelerator("h100-sxm-80gb"), CATALOG.release("0.32.0")
GIB = 2**30

QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


def with_lora(slots: int = 1, rank: int = 16) -> EngineOptions:
    return EngineOptions("v0.32.0", 8192, enable_lora=True, max_loras=slots, max_lora_rank=rank)


@pytest.mark.parametrize(
    ("config", "slots", "rank", "want_gib"),
    [
        (LLAMA, 1, 16, (0.086, 0.061, 0.048, 0.042)),
        (LLAMA, 4, 64, (1.38, 0.97, 0.77, 0.67)),
        (QWEN3_30B, 1, 16, (1.58, 1.37, 1.26, 1.20)),
        (QWEN3_30B, 4, 64, (25.3, 21.9, 20.1, 19.3)),
    ],
)
def test_buffers_grow_with_slots_and_rank_and_hardly_shrink_by_sharding(
    config: dict[str, Any], slots: int, rank: int, want_gib: tuple[float, ...]
) -> None:
    shape, options = parse_config(config), with_lora(slots, rank)
    got = [adapter_bytes(shape, Sharding(tensor=tensor), options) for tensor in (1, 2, 4, 8)]
    assert [size / GIB for size in got] == pytest.approx(want_gib, rel=0.01)


def test_they_are_part_of_the_weights() -> None:
    checkpoint, plain = Checkpoint(parse_config(LLAMA)), EngineOptions("v0.32.0", 8192)
    without, with_buffers = (
        max(weights_by_stage(checkpoint, Parallelism(), options, ACCELERATOR, RELEASE))
        for options in (plain, with_lora())
    )
    assert with_buffers - without == adapter_bytes(checkpoint.shape, Sharding(), with_lora())
    assert adapter_bytes(checkpoint.shape, Sharding(), plain) == 0


def test_graphs_are_captured_with_and_without_adapters() -> None:
    shape = parse_config(LLAMA)

    def graphs(options: EngineOptions) -> int:
        batch: Batch = plan_batch(shape, options, Parallelism(), ACCELERATOR, 80 * GIB, RELEASE)
        return graph_bytes(shape, Parallelism(), options, batch, ACCELERATOR, RELEASE)

    assert graphs(with_lora()) == 2 * graphs(EngineOptions("v0.32.0", 8192)) > 0
