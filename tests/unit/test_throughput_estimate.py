"""The estimate against published measurements, and what it must never get wrong."""

from dataclasses import dataclass, replace

import pytest

from tests.support.placing import (
    CATALOG,
    DEEPSEEK_V3,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B_FP8,
    checkpoint_of,
)
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions, MemoryAccount, Parallelism
from tonnage.fit.weights import weights_per_gpu
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.figures import load_throughput_data
from tonnage.throughput.model import Demand, ThroughputEstimate
from tonnage.throughput.work import token_work

OPTIONS = EngineOptions(vllm_version="v0.32.0", max_model_len=8192)
KV_BYTES_PER_TOKEN_405B = 516_096
"""bfloat16, over all GPUs."""


def holding(
    device_bytes: int, weights_bytes: int, kv_bytes_per_token: int, kv_cache_tokens: int
) -> MemoryAccount:
    """An account of which only what decides the speed is filled in."""
    return MemoryAccount(
        device_bytes=device_bytes,
        budget_bytes=0,
        weights_bytes=weights_bytes,
        activation_bytes=0,
        non_torch_bytes=0,
        graph_bytes=0,
        kv_cache_bytes=0,
        request_kv_bytes=0,
        kv_bytes_per_token=kv_bytes_per_token,
        kv_cache_tokens=kv_cache_tokens,
    )


def estimate(
    checkpoint: Checkpoint,
    accelerator_id: str,
    parallelism: Parallelism,
    demand: Demand,
    *,
    kv_bytes_per_token: int = 327_680,
    kv_cache_tokens: int = 10**9,
    options: EngineOptions = OPTIONS,
) -> ThroughputEstimate | None:
    accelerator = CATALOG.accelerator(accelerator_id)
    release = CATALOG.release(options.vllm_version)
    account = holding(
        accelerator.memory_bytes or 0,
        weights_per_gpu(checkpoint, parallelism, options, accelerator, release),
        kv_bytes_per_token // parallelism.gpus,
        kv_cache_tokens,
    )
    return estimate_throughput(
        checkpoint, accelerator, parallelism, options, account, demand, CATALOG
    )


@dataclass
class Measured:
    """Milliseconds of one step: elapsed time of a static batch by its output tokens."""

    accelerator: str
    tensor: int
    demand: Demand
    want_step_ms: float


MEASURED = {
    # Llama 3.1 405B FP8, dstack's benchmark of November 2024 (vLLM V0).
    "8 x H100, batch 4": Measured("h100-sxm-80gb", 8, Demand(128, 2048, 4), 34.8),
    "8 x H100, batch 16, long prompts": Measured("h100-sxm-80gb", 8, Demand(2048, 2048, 16), 40.95),
    "8 x MI300X, batch 4": Measured("mi300x", 8, Demand(128, 2048, 4), 33.1),
    "4 x MI300X, batch 4": Measured("mi300x", 4, Demand(128, 2048, 4), 45.98),
    "4 x MI300X, batch 64": Measured("mi300x", 4, Demand(2048, 2048, 64), 90.61),
    # The same model, OCI's benchmark of 2024.
    "8 x MI300X, alone": Measured("mi300x", 8, Demand(128, 128, 1), 27.58),
}


@pytest.mark.parametrize("case", MEASURED.values(), ids=MEASURED.keys())
def test_decode_is_within_the_band_of_what_was_measured(case: Measured) -> None:
    found = estimate(
        LLAMA_405B_FP8,
        case.accelerator,
        Parallelism(case.tensor),
        case.demand,
        kv_bytes_per_token=KV_BYTES_PER_TOKEN_405B,
    )
    assert found is not None
    step_ms = found.time_per_output_token_seconds * 1000
    assert step_ms == pytest.approx(case.want_step_ms, rel=load_throughput_data().band)
    assert step_ms == pytest.approx(case.want_step_ms, rel=0.25), "worse than it was"


SATURATED = {
    # Llama 3.1 70B FP8, tokens a second a GPU, vLLM 0.9 (MLPerf Inference v5.1, Krai).
    "MI300X": ("mi300x", 18_559 / 8),
    "H200": ("h200-sxm-141gb", 30_893 / 8),
}


@pytest.mark.parametrize(("accelerator", "want"), SATURATED.values(), ids=SATURATED.keys())
def test_saturated_serving_is_within_the_band(accelerator: str, want: float) -> None:
    checkpoint = checkpoint_of("llama-3.3-70b-fp8-dynamic")
    found = estimate(checkpoint, accelerator, Parallelism(1), Demand(294, 283, 1024))
    assert found is not None
    assert found.tokens_per_second == pytest.approx(want, rel=found.band)


ACTIVE_BILLIONS = {
    "llama-3.1-8b": 7.5,
    "llama-3.3-70b": 69.5,
    "deepseek-v3": 36.6,
    "gpt-oss-120b": 5.1,
    "mixtral-8x7b": 12.7,
    "qwen3-235b-a22b-fp8": 21.6,
}


@pytest.mark.parametrize(("name", "want"), ACTIVE_BILLIONS.items())
def test_active_parameters_are_the_published_ones_less_the_embedding(
    name: str, want: float
) -> None:
    shape = checkpoint_of(name).shape
    work = token_work(shape, shape.quantization)
    assert work.active_parameters / 1e9 == pytest.approx(want, abs=0.1)


def test_a_mesh_is_slower_between_two_gpus_than_a_switch_would_be() -> None:
    mesh = CATALOG.accelerator("mi300x")
    switched = replace(mesh, pair_bandwidth=mesh.link_bandwidth)
    found = {}
    for name, accelerator in (("mesh", mesh), ("switch", switched)):
        for tensor in (2, 8):
            account = holding(mesh.memory_bytes or 0, 70 * 10**9, 163_840, 10**9)
            demand = Demand(2000, 200, 64)
            result = estimate_throughput(
                LLAMA_70B, accelerator, Parallelism(tensor), OPTIONS, account, demand, CATALOG
            )
            assert result is not None
            found[name, tensor] = result.tokens_per_second
    assert found["mesh", 2] < found["switch", 2]
    assert found["mesh", 8] == found["switch", 8]


def test_few_requests_touch_few_experts() -> None:
    work = token_work(DEEPSEEK_V3.shape, DEEPSEEK_V3.shape.quantization)
    account = holding(0, 700 * 10**9, 0, 0)
    read = [work.weight_bytes(account, 1, batch) for batch in (1, 8, 64, 1024)]
    assert read == sorted(read)
    assert read[0] < 0.1 * account.weights_bytes
    assert read[-1] > 0.99 * (account.weights_bytes - work.embedding_bytes)


def test_the_batch_is_what_the_cache_holds_and_vllm_schedules() -> None:
    small = estimate(LLAMA_8B, "l40s", Parallelism(1), Demand(900, 100, 64), kv_cache_tokens=10_500)
    assert small is not None
    assert small.batch == 10
    limited = replace(OPTIONS, max_num_seqs=3)
    found = estimate(LLAMA_8B, "l40s", Parallelism(1), Demand(900, 100, 64), options=limited)
    assert found is not None
    assert found.batch == 3


def test_quantising_while_loading_makes_decode_faster() -> None:
    demand = Demand(1000, 200, 1)
    plain = estimate(LLAMA_8B, "h100-sxm-80gb", Parallelism(1), demand)
    online = replace(OPTIONS, quantization="fp8")
    quantised = estimate(LLAMA_8B, "h100-sxm-80gb", Parallelism(1), demand, options=online)
    assert plain is not None
    assert quantised is not None
    assert quantised.tokens_per_second > 1.3 * plain.tokens_per_second


def test_two_stages_take_as_long_a_token_and_serve_a_batch_faster() -> None:
    one = estimate(LLAMA_70B, "h200-sxm-141gb", Parallelism(4), Demand(1000, 200, 64))
    two = estimate(LLAMA_70B, "h200-sxm-141gb", Parallelism(4, 2), Demand(1000, 200, 64))
    assert one is not None
    assert two is not None
    assert two.tokens_per_second > one.tokens_per_second


@pytest.mark.parametrize("accelerator", ["mi308x", "vr-nvl72-288gb"])
def test_without_figures_there_is_no_estimate(accelerator: str) -> None:
    assert estimate(LLAMA_8B, accelerator, Parallelism(1), Demand(1000, 200, 1)) is None


def test_every_supported_architecture_has_figures() -> None:
    data = load_throughput_data()
    missing = {
        accelerator.id
        for accelerator in CATALOG.accelerators.values()
        if accelerator.supported and accelerator.bf16_flops and data.figures(accelerator) is None
    }
    assert missing == set()


def test_every_architecture_knows_its_efficiency_in_16_bits() -> None:
    data = load_throughput_data()
    for figures in (*data.architectures.values(), *data.accelerators.values()):
        assert "bf16" in figures.compute_efficiency
        assert set(figures.compute_efficiency) <= {"bf16", "fp8", "fp4"}
