"""Buffers for LoRA adapters: exactly those that vLLM's own classes allocate."""

from typing import Any

import pytest

from accuracy.records import AdapterBuild, adapter_builds, models
from tests.support.engines.subjects import LLAMA
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.activation.graphs import graph_bytes
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.lora.buffers import adapted_layers, lora_bytes
from tonnage.fit.lora.targets import narrower_targets
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    MemoryAccount,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.weights.matrix import Sharding
from tonnage.fit.weights.total import stage_shardings

CATALOG = load_catalog()
H100, H200 = CATALOG.accelerator("h100-sxm-80gb"), CATALOG.accelerator("h200-sxm-141gb")
RELEASE = CATALOG.release("0.32.0")
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
ATTENTION = ("o_proj", "qkv_proj")


def with_lora(slots: int = 1, rank: int = 16, **options: Any) -> EngineOptions:
    return EngineOptions(
        "v0.32.0", 8192, enable_lora=True, max_loras=slots, max_lora_rank=rank, **options
    )


def calculate(build: AdapterBuild) -> dict[str, int]:
    """Bytes by layer, as the record has them."""
    shape = parse_config(models()[build.model].config)
    options = with_lora(
        build.max_loras,
        build.max_lora_rank,
        fully_sharded_loras=build.fully_sharded_loras,
        lora_target_modules=build.target_modules,
        enable_expert_parallel=build.enable_expert_parallel,
    )
    parallelism = Parallelism(build.tensor_parallel_size, build.pipeline_parallel_size)
    stages = list(stage_shardings(shape, parallelism, options, H200, RELEASE))
    sharding = stages[build.stage]
    sizes: dict[str, int] = {}
    layers = adapted_layers(shape, sharding, build.target_modules, build.fully_sharded_loras)
    for layer in layers:
        size = layer.buffer_bytes(options, sharding.tensor)
        sizes[layer.name] = sizes.get(layer.name, 0) + size
    assert lora_bytes(shape, sharding, options) == sum(sizes.values())
    return sizes


@pytest.mark.parametrize("build", adapter_builds(), ids=lambda build: build.id)
def test_each_layer_has_the_bytes_that_vllm_allocates(build: AdapterBuild) -> None:
    assert calculate(build) == build.layers


def test_the_records_cover_every_kind_of_layer() -> None:
    builds = adapter_builds()
    assert len(builds) >= 40
    assert {build.tensor_parallel_size for build in builds} == {1, 2, 4, 8}
    covered = {name for build in builds for name in build.layers}
    assert covered >= {
        "qkv_proj", "o_proj", "gate_up_proj", "down_proj", "up_proj", "embed_tokens", "lm_head",
        "experts", "gate", "shared_expert_gate", "fused_qkv_a_proj", "kv_a_proj_with_mqa",
        "in_proj_qkvz", "conv1d", "in_proj", "x_proj", "query_key_value",
    }  # fmt: skip
    sharded = [build for build in builds if build.fully_sharded_loras]
    assert any("experts" in build.layers for build in sharded)
    assert any(build.enable_expert_parallel for build in builds)
    assert any(build.stage for build in builds)


@pytest.mark.parametrize(
    ("slots", "rank", "want_gib"),
    [(1, 16, (1.58, 1.37, 1.26, 1.20)), (4, 64, (25.3, 21.9, 20.1, 19.3))],
)
def test_tensor_parallelism_hardly_shrinks_the_buffers_of_experts(
    slots: int, rank: int, want_gib: tuple[float, ...]
) -> None:
    shape, options = parse_config(QWEN3_30B), with_lora(slots, rank)
    got = [lora_bytes(shape, Sharding(tensor=tensor), options) for tensor in (1, 2, 4, 8)]
    assert [size / GIB for size in got] == pytest.approx(want_gib, rel=0.01)


def test_full_sharding_and_fewer_targets_shrink_them() -> None:
    shape, at_8 = parse_config(QWEN3_30B), Sharding(tensor=8)
    whole = lora_bytes(shape, at_8, with_lora(4, 64))
    sharded = lora_bytes(shape, at_8, with_lora(4, 64, fully_sharded_loras=True))
    attention = lora_bytes(shape, at_8, with_lora(4, 64, lora_target_modules=ATTENTION))
    assert sharded / GIB == pytest.approx(3.34, abs=0.01)
    # Three As of 2048 inputs and 768 outputs, and one A of 512 inputs and 2048 outputs.
    assert attention == 48 * 4 * 64 * 2 * (3 * 2048 + 768 + 512 + 2048)
    assert attention < sharded < whole


def test_without_enable_lora_there_are_none() -> None:
    plain = EngineOptions("v0.32.0", 8192, max_loras=4, max_lora_rank=64)
    assert lora_bytes(parse_config(LLAMA), Sharding(), plain) == 0


def account(config: dict[str, Any], options: EngineOptions) -> MemoryAccount:
    verdict = judge_fit(
        Checkpoint(parse_config(config)), H100, 79 * GIB, Parallelism(), options, 8192, CATALOG
    )
    assert isinstance(verdict, MemoryFit)
    return verdict.account


def test_they_are_a_term_of_their_own_and_shrink_the_kv_cache() -> None:
    plain = account(LLAMA, EngineOptions("v0.32.0", 8192, enforce_eager=True))
    adapted = account(LLAMA, with_lora(4, 64, enforce_eager=True))
    want = lora_bytes(parse_config(LLAMA), Sharding(), with_lora(4, 64))
    assert (plain.lora_bytes, adapted.lora_bytes) == (0, want)
    assert adapted.weights_bytes == plain.weights_bytes
    assert plain.kv_cache_bytes - adapted.kv_cache_bytes == want


def test_buffers_that_do_not_fit_are_the_reason() -> None:
    checkpoint = Checkpoint(parse_config(QWEN3_30B))
    verdict = judge_fit(checkpoint, H100, 79 * GIB, Parallelism(), with_lora(4, 64), 8192, CATALOG)
    assert isinstance(verdict, DoesNotFit)
    assert verdict.term is MemoryTerm.LORA


def test_graphs_are_captured_with_and_without_adapters() -> None:
    shape = parse_config(LLAMA)

    def graphs(options: EngineOptions) -> int:
        batch: Batch = plan_batch(shape, options, Parallelism(), H100, 80 * GIB, RELEASE)
        return graph_bytes(shape, Parallelism(), options, batch, H100, RELEASE)

    assert graphs(with_lora()) == 2 * graphs(EngineOptions("v0.32.0", 8192)) > 0


@pytest.mark.parametrize(
    ("config", "targets", "want"),
    [
        (
            QWEN3_30B,
            (),
            [("experts", "gate", "o_proj", "qkv_proj"), ("o_proj", "qkv_proj")],
        ),
        (QWEN3_30B, ("experts", "qkv_proj"), [("qkv_proj",)]),
        (LLAMA, ("o_proj",), []),
    ],
)
def test_fewer_targets_end_with_those_of_attention(
    config: dict[str, Any], targets: tuple[str, ...], want: list[tuple[str, ...]]
) -> None:
    assert list(narrower_targets(parse_config(config), targets)) == want
