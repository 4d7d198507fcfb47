"""Known models on known devices: what fits, by how much, and which term breaks it."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    IllegalParallelism,
    MemoryAccount,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)

CATALOG = load_catalog()
LLAMA_70B_BYTES = 141_107_412_992
LLAMA_405B_BYTES = 406_000_000_000
DEEPSEEK_V3_BYTES = 688_586_727_753


def load(name: str, weights_bytes: int | None = None) -> Checkpoint:
    return Checkpoint(load_shape(name), weights_bytes=weights_bytes)


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
    assert 38e9 < verdict.account.kv_cache_bytes < 43e9


def test_the_terms_add_up_to_the_budget() -> None:
    verdict = judge(load("llama-3.3-70b"), "mi300x", 1)
    assert isinstance(verdict, MemoryFit)
    account = verdict.account
    terms = (
        account.weights_bytes
        + account.activation_bytes
        + account.non_torch_bytes
        + account.graph_bytes
        + account.kv_cache_bytes
    )
    assert terms == account.budget_bytes
    assert account.budget_bytes == pytest.approx(0.92 * account.device_bytes)


BROKEN: list[tuple[str, str, int, int, MemoryTerm]] = [
    ("llama-3.3-70b", "h100-sxm-80gb", 1, 1024, MemoryTerm.WEIGHTS),
    ("llama-3.3-70b", "h100-sxm-80gb", 2, 32768, MemoryTerm.KV_CACHE),
    ("llama-3.1-405b-fp8", "mi300x", 2, 1024, MemoryTerm.WEIGHTS),
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


def test_an_illegal_parallelism_is_reported_before_memory() -> None:
    assert isinstance(judge(load("llama-3.1-8b"), "l4", 3), IllegalParallelism)


OPTIONS = EngineOptions("v0.32.0", 8192)


@pytest.mark.parametrize("version", ["v0.12.0", "v0.22.1", "v0.32.0"])
def test_fewer_sequences_leave_more_for_the_cache(version: str) -> None:
    """Where the sampler is profiled with less, else in smaller graphs."""
    checkpoint, chosen = load("llama-3.1-8b"), replace(OPTIONS, release=version)
    many = judge(checkpoint, "h100-sxm-80gb", 1, options=chosen)
    few = judge(checkpoint, "h100-sxm-80gb", 1, options=replace(chosen, max_num_seqs=64))
    assert isinstance(many, MemoryFit)
    assert isinstance(few, MemoryFit)
    assert few.account.kv_cache_bytes > many.account.kv_cache_bytes


def test_eager_mode_has_no_graphs() -> None:
    verdict = judge(load("llama-3.1-8b"), "mi300x", 1, options=replace(OPTIONS, enforce_eager=True))
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.graph_bytes == 0


def test_older_releases_kept_graphs_outside_a_smaller_budget() -> None:
    options = replace(OPTIONS, release="v0.11.0")
    verdict = judge(load("llama-3.1-8b"), "mi300x", 1, options=options)
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.graph_bytes == 0
    assert verdict.account.budget_bytes == pytest.approx(0.9 * verdict.account.device_bytes)


def test_graphs_outside_the_budget_need_free_memory() -> None:
    options = replace(OPTIONS, release="v0.8.3", gpu_memory_utilization=0.98, max_num_seqs=64)
    verdict = judge(load("llama-3.3-70b"), "a100-sxm-80gb", 4, options=options)
    assert isinstance(verdict, DoesNotFit)
    assert verdict.term is MemoryTerm.GRAPHS
    assert verdict.available_bytes == pytest.approx(0.02 * verdict.account.device_bytes)
    assert verdict.account.kv_cache_bytes > 20 * 1024**3, "the cache itself would have fitted"
    eager = replace(options, enforce_eager=True)
    assert isinstance(judge(load("llama-3.3-70b"), "a100-sxm-80gb", 4, options=eager), MemoryFit)


def test_a_whole_device_is_never_free_at_start() -> None:
    options = replace(OPTIONS, gpu_memory_utilization=1.0)
    verdict = judge(load("llama-3.1-8b"), "mi300x", 1, options=options)
    assert isinstance(verdict, DoesNotFit)
    assert verdict.term is MemoryTerm.NON_TORCH
    assert verdict.available_bytes == 0


def test_a_margin_within_the_band_is_tight() -> None:
    roomy = judge(load("llama-3.1-8b"), "h100-sxm-80gb", 1, length=8192)
    assert isinstance(roomy, MemoryFit)
    assert not roomy.tight
    account = roomy.account
    tokens = (account.kv_cache_bytes - account.band_bytes // 2) // account.kv_bytes_per_token
    full = judge(load("llama-3.1-8b"), "h100-sxm-80gb", 1, length=8192, required=tokens)
    assert isinstance(full, MemoryFit)
    assert full.tight


def test_a_cache_of_given_size_is_that_large() -> None:
    size = 20 * 1024**3
    options = replace(OPTIONS, kv_cache_memory_bytes=size)
    verdict = judge(load("llama-3.1-8b"), "h100-sxm-80gb", 1, options=options)
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.kv_cache_bytes == size
    too_large = replace(OPTIONS, kv_cache_memory_bytes=80 * 1024**3)
    refused = judge(load("llama-3.1-8b"), "h100-sxm-80gb", 1, options=too_large)
    assert isinstance(refused, DoesNotFit)


def test_offloaded_weights_free_their_memory() -> None:
    here = judge(load("llama-3.1-8b"), "l4", 1, options=OPTIONS)
    options = replace(OPTIONS, cpu_offload_bytes=4 * 1024**3)
    there = judge(load("llama-3.1-8b"), "l4", 1, options=options)
    assert isinstance(here, MemoryFit)
    assert isinstance(there, MemoryFit)
    assert there.account.kv_cache_bytes - here.account.kv_cache_bytes == 4 * 1024**3


def test_a_vision_encoder_raises_the_activation_peak() -> None:
    gemma = load("gemma-3-27b")
    without_encoder = Checkpoint(replace(gemma.shape, encoders=()))
    seeing, reading = judge(gemma, "mi300x", 1), judge(without_encoder, "mi300x", 1)
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


@pytest.mark.parametrize("name", ["llama-3.3-70b", "gemma-3-27b", "deepseek-v3", "gpt-oss-120b"])
@pytest.mark.parametrize("required", [32768, 100_000])
def test_the_margin_is_the_cache_beyond_the_least_that_fits(name: str, required: int) -> None:
    def verdict_with(size_bytes: int) -> FitVerdict:
        options = EngineOptions("v0.32.0", 32768, kv_cache_memory_bytes=size_bytes)
        return judge(load(name), "mi300x", 8, options=options, required=required)

    plenty = verdict_with(100 * 2**30)
    assert isinstance(plenty, MemoryFit)
    needed = plenty.account.needed_kv_bytes
    assert plenty.account.margin_bytes == 100 * 2**30 - needed
    exact, less = verdict_with(needed), verdict_with(needed - 1)
    assert isinstance(exact, MemoryFit)
    assert (exact.account.margin_bytes, exact.tight) == (0, True)
    assert isinstance(less, DoesNotFit)
    assert (less.term, less.account.margin_bytes, less.narrowly) == (MemoryTerm.KV_CACHE, -1, True)


def test_a_shortage_outside_the_budget_is_marked() -> None:
    options = EngineOptions("v0.32.0", 8192, gpu_memory_utilization=0.999)
    outside = judge(load("llama-3.3-70b"), "mi300x", 2, options=options)
    assert isinstance(outside, DoesNotFit)
    assert (outside.term, outside.outside_budget, outside.narrowly) == (
        MemoryTerm.NON_TORCH,
        True,
        False,
    )
    assert outside.account.margin_bytes > 0
    within = judge(load("llama-3.3-70b"), "h100-sxm-80gb", 1)
    assert isinstance(within, DoesNotFit)
    assert not within.outside_budget


def judge_stages(
    name: str, weights_bytes: int | None, tensor: int, pipeline: int, options: EngineOptions
) -> MemoryAccount:
    accelerator = CATALOG.accelerator("h100-sxm-80gb")
    assert accelerator.memory_bytes is not None
    verdict = judge_fit(
        load(name, weights_bytes),
        accelerator,
        accelerator.memory_bytes,
        Parallelism(tensor, pipeline),
        options,
        options.max_model_len,
        CATALOG,
    )
    assert isinstance(verdict, MemoryFit)
    return verdict.account


def test_two_nodes_of_h100_hold_what_one_does_not() -> None:
    account = judge_stages("deepseek-v3", DEEPSEEK_V3_BYTES, 8, 2, EngineOptions("v0.32.0", 32768))
    assert [stage.layers for stage in account.stages] == [31, 30]
    on_all_gpus = 8 * sum(stage.weights_bytes for stage in account.stages)
    assert on_all_gpus == pytest.approx(DEEPSEEK_V3_BYTES, rel=0.03)
    assert account.kv_cache_tokens == min(stage.kv_cache_tokens for stage in account.stages)
    limiting = min(account.stages, key=lambda stage: stage.kv_cache_tokens)
    assert account.weights_bytes == limiting.weights_bytes
    assert account.kv_cache_bytes == limiting.kv_cache_bytes


def test_the_stage_with_the_fewest_tokens_decides_not_the_heaviest() -> None:
    """The first stage has the embeddings, and one layer less than the third."""
    account = judge_stages("llama-3.1-8b", None, 1, 5, EngineOptions("v0.32.0", 8192))
    assert [stage.layers for stage in account.stages] == [6, 6, 7, 7, 6]
    tokens = [stage.kv_cache_tokens for stage in account.stages]
    weights = [stage.weights_bytes for stage in account.stages]
    assert account.kv_cache_tokens == min(tokens)
    assert weights.index(max(weights)) != tokens.index(min(tokens))


def test_one_stage_is_not_listed() -> None:
    verdict = judge(load("llama-3.1-8b"), "h100-sxm-80gb", 1)
    assert isinstance(verdict, MemoryFit)
    assert verdict.account.stages == ()
