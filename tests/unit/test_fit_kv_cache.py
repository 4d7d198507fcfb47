"""KV cache of one GPU, against the plans that vLLM 0.32.0 makes."""

from dataclasses import replace

import pytest

from tests.support.shapes import grouped_query, layer, load_shape, with_layers
from tonnage.checkpoint.model import Mlp
from tonnage.fit.batch import Batch
from tonnage.fit.kv_cache import (
    kv_bytes_per_token,
    kv_cache_tokens,
    needed_kv_bytes,
    request_kv_bytes,
)
from tonnage.fit.model import EngineOptions, Parallelism

OPTIONS = EngineOptions("v0.32.0", 32768)
H200 = Batch(max_num_batched_tokens=8192, max_num_seqs=1024, in_flight_tokens=16384)


RATES: list[tuple[str, int, str, int]] = [
    ("llama-3.1-8b", 1, "auto", 131_072),
    ("llama-3.3-70b", 1, "auto", 327_680),
    ("llama-3.3-70b", 1, "bfloat16", 327_680),
    ("llama-3.3-70b", 1, "fp8", 163_840),
    ("llama-3.3-70b", 4, "auto", 81_920),
    ("llama-3.1-405b-fp8", 8, "auto", 64_512),
    ("qwen3-235b-a22b-fp8", 4, "auto", 48_128),
    ("qwen3-235b-a22b-fp8", 8, "auto", 48_128),
    ("deepseek-v3", 1, "auto", 70_272),
    ("deepseek-v3", 8, "auto", 70_272),
    ("deepseek-v3", 8, "fp8", 35_136),
    ("qwen3.5-397b-a17b", 1, "auto", 30_720),
    ("gpt-oss-120b", 1, "auto", 36_864),
]


@pytest.mark.parametrize(("name", "tensor", "dtype", "want_bytes"), RATES)
def test_what_a_token_costs(name: str, tensor: int, dtype: str, want_bytes: int) -> None:
    options = replace(OPTIONS, kv_cache_dtype=dtype)
    assert kv_bytes_per_token(load_shape(name), Parallelism(tensor), options) == want_bytes


# bytes of one request of 32,768 tokens in vLLM 0.32.0's own plan
REQUESTS: list[tuple[str, int, str, int]] = [
    ("llama-3.3-70b", 1, "auto", 10_737_418_240),
    ("deepseek-v3", 8, "auto", 2_302_672_896),
    ("gpt-oss-120b", 1, "auto", 1_817_247_744),
    ("gpt-oss-120b", 8, "fp8", 113_577_984),
    ("gemma-3-27b", 1, "auto", 11_248_599_040),
    ("qwen3.5-397b-a17b", 1, "auto", 1_416_560_640),
    ("qwen3.5-397b-a17b", 8, "auto", 559_595_520),
    ("qwen3.5-397b-a17b", 8, "fp8", 308_183_040),
]


@pytest.mark.parametrize(("name", "tensor", "dtype", "want_bytes"), REQUESTS)
def test_what_a_request_holds(name: str, tensor: int, dtype: str, want_bytes: int) -> None:
    options = replace(OPTIONS, kv_cache_dtype=dtype)
    assert (
        request_kv_bytes(load_shape(name), Parallelism(tensor), options, H200, 32768) == want_bytes
    )


def test_a_window_bounds_what_long_requests_hold() -> None:
    shape = load_shape("gemma-3-27b")
    full = with_layers(shape, (layer(grouped_query(32, 16), Mlp(21504), 5376), shape.layers))
    parallelism = Parallelism()
    windowed = request_kv_bytes(shape, parallelism, OPTIONS, H200, 131_072)
    assert windowed < request_kv_bytes(full, parallelism, OPTIONS, H200, 131_072) / 2


def test_a_larger_batch_keeps_more_behind_the_window() -> None:
    shape, parallelism = load_shape("gpt-oss-120b"), Parallelism()
    smaller = replace(H200, in_flight_tokens=2048)
    assert request_kv_bytes(shape, parallelism, OPTIONS, smaller, 32768) < request_kv_bytes(
        shape, parallelism, OPTIONS, H200, 32768
    )


def test_a_model_with_windows_everywhere_costs_nothing_a_further_token() -> None:
    shape = load_shape("llama-3.1-8b", model_type="mistral", sliding_window=4096)
    assert kv_bytes_per_token(shape, Parallelism(), OPTIONS) == 0
    held = request_kv_bytes(shape, Parallelism(), OPTIONS, H200, 32768)
    assert held == 32 * (20480 + 16) * 4096, "4095 + 16384 tokens in blocks, and one block more"


def test_a_checkpoint_that_declares_an_fp8_cache_gets_one() -> None:
    shape = load_shape("llama-3.3-70b-fp8-dynamic")
    assert shape.quantization is not None
    declared = replace(shape, quantization=replace(shape.quantization, kv_cache_bits=8))
    assert kv_bytes_per_token(declared, Parallelism(), OPTIONS) == 163_840
    asked = replace(OPTIONS, kv_cache_dtype="bfloat16")
    assert kv_bytes_per_token(declared, Parallelism(), asked) == 327_680


def test_sparse_latent_attention_has_a_second_cache() -> None:
    shape = load_shape("deepseek-v3", index_n_heads=64, index_head_dim=128)
    assert kv_bytes_per_token(shape, Parallelism(8), OPTIONS) == 78_324
    fp8 = replace(OPTIONS, kv_cache_dtype="fp8")
    assert kv_bytes_per_token(shape, Parallelism(8), fp8) == 48_068


def test_tokens_and_bytes_are_each_others_inverse() -> None:
    shape, parallelism = load_shape("gpt-oss-120b"), Parallelism()
    needed = needed_kv_bytes(shape, parallelism, OPTIONS, H200, 100_000)
    assert kv_cache_tokens(shape, parallelism, OPTIONS, H200, needed) == 100_000
    assert kv_cache_tokens(shape, parallelism, OPTIONS, H200, needed - 1) == 99_999
