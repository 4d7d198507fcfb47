"""Known models on known devices: what fits, by how much, and which term breaks it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.config import parse_config
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    IllegalParallelism,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)

CATALOG = load_catalog()
CONFIGS = Path(__file__).parents[1] / "data" / "configs"
LLAMA_70B_BYTES = 141_107_412_992
LLAMA_405B_BYTES = 406_000_000_000
DEEPSEEK_V3_BYTES = 688_586_727_753


def load(name: str, weights_bytes: int | None = None) -> Checkpoint:
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    return Checkpoint(parse_config(config), weights_bytes=weights_bytes)


def judge(
    checkpoint: Checkpoint,
    accelerator_id: str,
    tensor: int,
    *,
    length: int = 32768,
    required: int | None = None,
    options: EngineOptions | None = None,
) -> FitVerdict:
    accelerator = CATALOG.accelerator(accelerator_id)
    assert accelerator.memory_bytes is not None
    return judge_fit(
        checkpoint,
        accelerator,
        accelerator.memory_bytes,
        Parallelism(tensor),
        options or EngineOptions("v0.32.0", length),
        required or length,
        CATALOG,
    )


FITTING: list[tuple[str, int | None, str, int, bool]] = [
    ("llama-3.3-70b", LLAMA_70B_BYTES, "mi300x", 1, True),
    ("llama-3.3-70b", LLAMA_70B_BYTES, "h100-sxm-80gb", 1, False),
    ("llama-3.3-70b", LLAMA_70B_BYTES, "h100-sxm-80gb", 2, False),
    ("llama-3.3-70b", LLAMA_70B_BYTES, "h100-sxm-80gb", 4, True),
    ("llama-3.3-70b", None, "mi300x", 1, True),
    ("llama-3.3-70b-fp8-dynamic", None, "h100-sxm-80gb", 1, False),
    ("llama-3.3-70b-fp8-dynamic", None, "h100-sxm-80gb", 2, True),
    ("llama-3.1-405b-fp8", LLAMA_405B_BYTES, "h100-sxm-80gb", 8, True),
    ("llama-3.1-405b-fp8", LLAMA_405B_BYTES, "h100-sxm-80gb", 4, False),
    ("llama-3.1-405b-fp8", LLAMA_405B_BYTES, "mi300x", 4, True),
    ("llama-3.1-405b-fp8", LLAMA_405B_BYTES, "mi300x", 2, False),
    ("deepseek-v3", DEEPSEEK_V3_BYTES, "h100-sxm-80gb", 8, False),
    ("deepseek-v3", DEEPSEEK_V3_BYTES, "h200-sxm-141gb", 8, True),
    ("deepseek-v3", DEEPSEEK_V3_BYTES, "mi300x", 8, True),
    ("qwen3-235b-a22b-fp8", None, "h100-sxm-80gb", 2, False),
    ("qwen3-235b-a22b-fp8", None, "h100-sxm-80gb", 4, True),
    ("qwen3-235b-a22b-fp8", None, "h100-sxm-80gb", 8, True),
    ("qwen3-235b-a22b-fp8", None, "mi300x", 2, True),
    ("mixtral-8x7b", None, "h100-sxm-80gb", 1, False),
    ("mixtral-8x7b", None, "h100-sxm-80gb", 2, True),
    ("mixtral-8x7b", None, "mi300x", 1, True),
    ("gpt-oss-120b", None, "mi300x", 1, True),
    ("qwen3.5-397b-a17b", None, "mi300x", 8, True),
    ("qwen2.5-72b-awq", None, "l40s", 2, True),
]


@pytest.mark.parametrize(("name", "weights_bytes", "accelerator", "tensor", "want_fit"), FITTING)
def test_known_models_on_known_devices(
    name: str, weights_bytes: int | None, accelerator: str, tensor: int, want_fit: bool
) -> None:
    verdict = judge(load(name, weights_bytes), accelerator, tensor)
    assert isinstance(verdict, MemoryFit) == want_fit, verdict


def test_llama_70b_leaves_over_a_hundred_thousand_tokens_on_one_mi300x() -> None:
    verdict = judge(load("llama-3.3-70b", LLAMA_70B_BYTES), "mi300x", 1)
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.weights_bytes == pytest.approx(LLAMA_70B_BYTES, rel=0.001)
    assert verdict.account.kv_bytes_per_token == 327_680
    assert 118_000 <= verdict.account.kv_cache_tokens <= 135_000


def test_llama_70b_over_four_h100_leaves_half_of_each_for_the_cache() -> None:
    verdict = judge(load("llama-3.3-70b", LLAMA_70B_BYTES), "h100-sxm-80gb", 4)
    assert isinstance(verdict, MemoryFit)
    overheads = (
        verdict.account.activation_bytes
        + verdict.account.non_torch_bytes
        + verdict.account.graph_bytes
    )
    assert verdict.account.kv_cache_bytes + overheads == pytest.approx(43e9, rel=0.01)
    assert verdict.account.kv_cache_bytes > 34e9


def test_the_terms_add_up_to_the_budget() -> None:
    verdict = judge(load("llama-3.3-70b"), "mi300x", 1)
    assert isinstance(verdict, MemoryFit)
    terms = (
        verdict.account.weights_bytes
        + verdict.account.activation_bytes
        + verdict.account.non_torch_bytes
        + verdict.account.graph_bytes
        + verdict.account.kv_cache_bytes
    )
    assert terms == verdict.account.budget_bytes
    assert verdict.account.budget_bytes == pytest.approx(0.92 * verdict.account.device_bytes)


BROKEN: list[tuple[str, str, int, int, MemoryTerm]] = [
    ("llama-3.3-70b", "h100-sxm-80gb", 1, 1024, MemoryTerm.WEIGHTS),
    ("llama-3.3-70b", "h100-sxm-80gb", 2, 32768, MemoryTerm.KV_CACHE),
    ("llama-3.3-70b-fp8-dynamic", "h100-sxm-80gb", 1, 1024, MemoryTerm.GRAPHS),
    ("llama-3.1-8b", "rx-7800-xt", 1, 1024, MemoryTerm.WEIGHTS),
]


@pytest.mark.parametrize(("name", "accelerator", "tensor", "length", "want_term"), BROKEN)
def test_the_term_that_breaks_it_is_named(
    name: str, accelerator: str, tensor: int, length: int, want_term: MemoryTerm
) -> None:
    verdict = judge(load(name), accelerator, tensor, length=length)
    assert isinstance(verdict, DoesNotFit)
    assert verdict.term is want_term
    assert verdict.needed_bytes > verdict.available_bytes


def test_more_tokens_than_the_cache_holds_do_not_fit() -> None:
    checkpoint = load("llama-3.3-70b", LLAMA_70B_BYTES)
    fitting = judge(checkpoint, "mi300x", 1)
    assert isinstance(fitting, MemoryFit)
    enough = judge(checkpoint, "mi300x", 1, required=fitting.account.kv_cache_tokens)
    assert isinstance(enough, MemoryFit)
    too_many = judge(checkpoint, "mi300x", 1, required=fitting.account.kv_cache_tokens + 1)
    assert isinstance(too_many, DoesNotFit)
    assert too_many.term is MemoryTerm.KV_CACHE


def test_an_illegal_split_is_told_before_any_memory() -> None:
    assert isinstance(judge(load("llama-3.1-8b"), "l4", 3), IllegalParallelism)


OPTIONS = EngineOptions("v0.32.0", 8192)


def test_fewer_sequences_leave_more_for_the_cache() -> None:
    checkpoint = load("llama-3.1-8b")
    many = judge(checkpoint, "h100-sxm-80gb", 1, options=OPTIONS)
    few = judge(checkpoint, "h100-sxm-80gb", 1, options=replace(OPTIONS, max_num_seqs=64))
    assert isinstance(many, MemoryFit)
    assert isinstance(few, MemoryFit)
    assert few.account.activation_bytes < many.account.activation_bytes


def test_eager_mode_has_no_graphs() -> None:
    verdict = judge(load("llama-3.1-8b"), "mi300x", 1, options=replace(OPTIONS, enforce_eager=True))
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.graph_bytes == 0


def test_older_releases_kept_graphs_outside_a_smaller_budget() -> None:
    options = replace(OPTIONS, vllm_version="v0.11.0")
    verdict = judge(load("llama-3.1-8b"), "mi300x", 1, options=options)
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.graph_bytes == 0
    assert verdict.account.budget_bytes == pytest.approx(0.9 * verdict.account.device_bytes)


def test_a_vision_tower_raises_the_activation_peak() -> None:
    gemma = load("gemma-3-27b")
    blind = Checkpoint(replace(gemma.shape, vision_parameters=0))
    seeing, reading = judge(gemma, "mi300x", 1), judge(blind, "mi300x", 1)
    assert isinstance(seeing, MemoryFit)
    assert isinstance(reading, MemoryFit)
    assert seeing.account.activation_bytes > reading.account.activation_bytes + 2 * 1024**3


def test_a_pipeline_shares_out_layers() -> None:
    checkpoint = load("llama-3.3-70b", LLAMA_70B_BYTES)
    h100 = CATALOG.accelerator("h100-sxm-80gb")
    assert h100.memory_bytes is not None
    verdict = judge_fit(
        checkpoint, h100, h100.memory_bytes, Parallelism(2, 2), OPTIONS, 8192, CATALOG
    )
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.weights_bytes == pytest.approx(LLAMA_70B_BYTES / 4, rel=0.02)
    assert verdict.account.kv_bytes_per_token == 327_680 // 4
