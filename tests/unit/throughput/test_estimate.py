"""The estimate's response to each input, and the meaning of its results."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.support.fleets.placing import CATALOG, DEEPSEEK_V3, LLAMA_8B, LLAMA_70B, checkpoint_of
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, Quantization
from tonnage.fit.model import EngineOptions, MemoryAccount, Parallelism
from tonnage.fit.weights.total import weights_by_stage
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.figures import load_throughput_data
from tonnage.throughput.model import Demand, ThroughputEstimate
from tonnage.throughput.work import token_work

TP_4 = Parallelism(4)
OPTIONS = EngineOptions(release="v0.32.0", max_model_len=8192)
H100 = CATALOG.accelerator("h100-sxm-80gb")
MI300X = CATALOG.accelerator("mi300x")
CHAT = Demand(2000, 200, 64)


@dataclass(frozen=True)
class EstimateCase:
    """One replica, with a memory account that has only the fields relevant to speed."""

    checkpoint: Checkpoint = LLAMA_70B
    accelerator: Accelerator = H100
    parallelism: Parallelism = TP_4
    options: EngineOptions = OPTIONS
    demand: Demand = CHAT
    kv_bytes_per_token: int = 327_680
    kv_cache_tokens: int = 10**9
    share: float = 1.0

    def try_estimate(self) -> ThroughputEstimate | None:
        accelerator = self.accelerator
        release = CATALOG.release(self.options.release)
        account = MemoryAccount(
            device_bytes=accelerator.memory_bytes or 0,
            budget_bytes=0,
            weights_bytes=max(
                weights_by_stage(
                    self.checkpoint, self.parallelism, self.options, accelerator, release
                )
            ),
            activation_bytes=0,
            non_torch_bytes=0,
            graph_bytes=0,
            kv_cache_bytes=0,
            request_kv_bytes=0,
            kv_bytes_per_token=self.kv_bytes_per_token // self.parallelism.tensor,
            kv_cache_tokens=self.kv_cache_tokens,
        )
        return estimate_throughput(
            self.checkpoint,
            accelerator,
            self.parallelism,
            self.options,
            account,
            self.demand,
            CATALOG,
            self.share,
        )

    def estimate(self) -> ThroughputEstimate:
        estimate = self.try_estimate()
        assert estimate is not None
        return estimate


def speed(case: EstimateCase) -> float:
    return case.estimate().tokens_per_second


def first_token(case: EstimateCase) -> float:
    return case.estimate().time_to_first_token_seconds


def per_token(case: EstimateCase) -> float:
    return case.estimate().time_per_output_token_seconds


def scaled(accelerator: Accelerator, **factors: float) -> Accelerator:
    """Return the accelerator with some of its peaks multiplied."""
    peaks = {name: getattr(accelerator, name) * factor for name, factor in factors.items()}
    return replace(accelerator, **peaks)


def with_demand(**demand: int) -> EstimateCase:
    return EstimateCase(demand=replace(CHAT, **demand))


BASE = EstimateCase()
SINGLE_REQUEST = with_demand(concurrency=1)
LLAMA_70B_FP8 = checkpoint_of("llama-3.3-70b-fp8-dynamic")

LATENTS = EstimateCase(
    DEEPSEEK_V3,
    parallelism=Parallelism(8),
    demand=Demand(100, 50_000, 64),
    kv_bytes_per_token=70_000,
)

FASTER: dict[str, tuple[EstimateCase, EstimateCase]] = {
    "more bandwidth": (BASE, EstimateCase(accelerator=scaled(H100, memory_bandwidth=1.5))),
    "more operations a second": (BASE, EstimateCase(accelerator=scaled(H100, bf16_flops=1.5))),
    "wider links": (
        BASE,
        EstimateCase(accelerator=scaled(H100, link_bandwidth=2, pair_bandwidth=2)),
    ),
    "more requests at once": (BASE, with_demand(concurrency=128)),
    "shorter prompts": (BASE, with_demand(input_tokens=500)),
    "a shorter context, single request": (
        with_demand(input_tokens=8000, concurrency=1),
        SINGLE_REQUEST,
    ),
    "more GPUs in a group": (BASE, EstimateCase(parallelism=Parallelism(8))),
    "two stages with a batch": (BASE, EstimateCase(parallelism=Parallelism(4, 2))),
    "two data-parallel ranks with a batch": (
        EstimateCase(DEEPSEEK_V3, parallelism=Parallelism(8)),
        EstimateCase(DEEPSEEK_V3, parallelism=Parallelism(8, data=2)),
    ),
    "a whole GPU rather than half of one": (
        EstimateCase(LLAMA_8B, parallelism=Parallelism(), share=0.5),
        EstimateCase(LLAMA_8B, parallelism=Parallelism()),
    ),
    "weights of 8 bits": (SINGLE_REQUEST, replace(SINGLE_REQUEST, checkpoint=LLAMA_70B_FP8)),
    "weights quantised at load time": (
        SINGLE_REQUEST,
        replace(SINGLE_REQUEST, options=replace(OPTIONS, quantization="fp8")),
    ),
    "the current engine": (
        EstimateCase(options=replace(OPTIONS, release="v0.6.4")),
        BASE,
    ),
    "a switch rather than a mesh, for two": (
        EstimateCase(accelerator=MI300X, parallelism=Parallelism(2)),
        EstimateCase(
            accelerator=replace(MI300X, pair_bandwidth=MI300X.link_bandwidth),
            parallelism=Parallelism(2),
        ),
    ),
    "a larger cache that holds more of the requests": (
        replace(BASE, kv_cache_tokens=20_000),
        replace(BASE, kv_cache_tokens=100_000),
    ),
    "more operations a second, with long contexts of latents": (
        LATENTS,
        replace(LATENTS, accelerator=scaled(H100, bf16_flops=2)),
    ),
    "active parameters rather than all": (
        EstimateCase(LLAMA_70B, parallelism=Parallelism(8), demand=replace(CHAT, concurrency=1)),
        EstimateCase(
            checkpoint_of("mixtral-8x7b"),
            parallelism=Parallelism(8),
            demand=replace(CHAT, concurrency=1),
        ),
    ),
}


@pytest.mark.parametrize(("slower", "faster"), FASTER.values(), ids=FASTER.keys())
def test_inputs_that_make_a_replica_faster(slower: EstimateCase, faster: EstimateCase) -> None:
    assert speed(faster) > 1.005 * speed(slower)


LONGER: dict[str, tuple[Callable[[EstimateCase], float], EstimateCase, EstimateCase]] = {
    "a longer prompt: first token": (first_token, BASE, with_demand(input_tokens=8000)),
    "more requests: first token": (first_token, SINGLE_REQUEST, BASE),
    "more than the cache holds: first token": (
        first_token,
        replace(BASE, kv_cache_tokens=100_000),
        replace(BASE, kv_cache_tokens=20_000),
    ),
    "prompts in small chunks: first token": (
        first_token,
        BASE,
        replace(BASE, options=replace(OPTIONS, max_num_batched_tokens=256)),
    ),
    "two stages: first token, single request": (
        first_token,
        EstimateCase(parallelism=Parallelism(8), demand=replace(CHAT, concurrency=1)),
        EstimateCase(parallelism=Parallelism(4, 2), demand=replace(CHAT, concurrency=1)),
    ),
    "more requests: time per token": (per_token, SINGLE_REQUEST, BASE),
    "more prefill by other requests: time per token": (
        per_token,
        BASE,
        with_demand(output_tokens=50),
    ),
    "a longer context: time per token": (per_token, BASE, with_demand(input_tokens=4000)),
}


@pytest.mark.parametrize(("latency", "shorter", "longer"), LONGER.values(), ids=LONGER.keys())
def test_inputs_that_increase_latency(
    latency: Callable[[EstimateCase], float], shorter: EstimateCase, longer: EstimateCase
) -> None:
    assert latency(longer) > 1.005 * latency(shorter)


def test_a_group_of_eight_has_all_links_of_a_mesh() -> None:
    switched = replace(MI300X, pair_bandwidth=MI300X.link_bandwidth)
    eight = EstimateCase(accelerator=MI300X, parallelism=Parallelism(8))
    assert speed(eight) == speed(replace(eight, accelerator=switched))


def test_half_a_gpu_has_half_its_bandwidth_and_half_its_operations() -> None:
    half = scaled(H100, memory_bandwidth=0.5, bf16_flops=0.5, fp8_flops=0.5)
    whole = EstimateCase(LLAMA_8B, parallelism=Parallelism())
    assert replace(whole, share=0.5).estimate() == replace(whole, accelerator=half).estimate()


def test_requests_beyond_the_kv_cache_do_not_make_it_faster() -> None:
    full = replace(BASE, kv_cache_tokens=21_000)
    estimate = full.estimate()
    assert estimate.batch == 10  # of 2,000 input tokens and half of 200 output tokens
    assert speed(replace(full, demand=replace(CHAT, concurrency=500))) == estimate.tokens_per_second


def test_max_num_seqs_limits_the_batch() -> None:
    assert replace(BASE, options=replace(OPTIONS, max_num_seqs=3)).estimate().batch == 3
    ranks = EstimateCase(
        parallelism=Parallelism(2, data=2), options=replace(OPTIONS, max_num_seqs=3)
    )
    assert ranks.estimate().batch == 6


def test_a_queued_request_waits_until_earlier_requests_are_served() -> None:
    full = replace(BASE, kv_cache_tokens=21_000, demand=replace(CHAT, concurrency=10))
    queued = replace(full, demand=replace(CHAT, concurrency=30))
    requests_per_second = speed(full) / CHAT.output_tokens
    wait_seconds = first_token(queued) - first_token(full)
    assert wait_seconds == pytest.approx(20 / requests_per_second)


def test_a_request_waits_for_the_prompts_of_other_requests() -> None:
    busy = with_demand(input_tokens=4000, output_tokens=20, concurrency=16)
    single_request = replace(busy, demand=replace(busy.demand, concurrency=1))
    assert first_token(busy) > 3 * first_token(single_request)


def test_a_single_request_does_not_wait_for_its_first_token() -> None:
    # 70e9 parameters of 2 bytes on 4 GPUs, at 3.35e12 bytes a second, and 2000 x 140e9 operations
    # at 989e12 a second: no faster than that, and not twice as slow as the effective figures.
    peak = 141e9 / 4 / 3.35e12 + 2000 * 140e9 / 4 / 989e12
    assert peak < first_token(SINGLE_REQUEST) < 2 * peak


def test_few_requests_read_few_experts() -> None:
    work = token_work(DEEPSEEK_V3.shape, DEEPSEEK_V3.shape.quantization)
    account = MemoryAccount(0, 0, 700 * 10**9, 0, 0, 0, 0, 0, 0, 0)
    read_bytes = [work.weight_bytes(account, 1, batch) for batch in (1, 8, 64, 1024)]
    assert read_bytes == sorted(read_bytes)
    assert read_bytes[0] < 0.1 * account.weights_bytes
    assert read_bytes[-1] > 0.99 * (account.weights_bytes - work.embedding_bytes)


def test_weights_that_every_step_expands_take_several_reads() -> None:
    checkpoint = checkpoint_of("llama-3.1-405b-fp8")  # Meta's format, for which V0 had no kernel
    old, new = (
        EstimateCase(
            checkpoint,
            MI300X,
            Parallelism(8),
            replace(OPTIONS, release=version),
            replace(CHAT, input_tokens=128, concurrency=4),
        )
        for version in ("v0.6.4", "v0.7.3")
    )
    assert per_token(old) > 2 * per_token(new)
    assert per_token(replace(old, accelerator=H100)) < 2 * per_token(replace(new, accelerator=H100))


MXFP4 = Quantization("mxfp4", 4, group_size=32, scale_bits=8)
NVFP4 = Quantization("modelopt", 4, group_size=16, scale_bits=8)
EXPANDED = [
    ("gfx942", MXFP4, "Qwen3MoeForCausalLM", True),
    ("gfx942", MXFP4, "GptOssForCausalLM", False),
    ("gfx950", MXFP4, "Qwen3MoeForCausalLM", False),
    ("gfx950", NVFP4, "Qwen3MoeForCausalLM", True),
    ("sm_90", NVFP4, "Qwen3MoeForCausalLM", False),
    ("gfx942", None, "Qwen3MoeForCausalLM", False),
]


@pytest.mark.parametrize(("arch", "loaded", "architecture", "want"), EXPANDED)
def test_formats_without_kernels_are_known(
    arch: str, loaded: Quantization | None, architecture: str, want: bool
) -> None:
    assert load_throughput_data().expands(arch, "0.32.0", loaded, architecture) is want


ACTIVE_BILLIONS = {
    "llama-3.1-8b": 7.5,
    "llama-3.3-70b": 69.5,
    "deepseek-v3": 36.6,
    "gpt-oss-120b": 5.1,
    "mixtral-8x7b": 12.7,
    "qwen3-235b-a22b-fp8": 21.6,
}


@pytest.mark.parametrize(("name", "want"), ACTIVE_BILLIONS.items())
def test_active_parameters_are_the_published_ones_without_the_embedding(
    name: str, want: float
) -> None:
    shape = checkpoint_of(name).shape
    work = token_work(shape, shape.quantization)
    assert work.active_parameters / 1e9 == pytest.approx(want, abs=0.1)


@pytest.mark.parametrize("accelerator", ["mi308x", "vr-nvl72-288gb"])
def test_without_figures_there_is_no_estimate(accelerator: str) -> None:
    case = EstimateCase(LLAMA_8B, CATALOG.accelerator(accelerator), Parallelism())
    assert case.try_estimate() is None


def test_without_known_links_there_is_no_estimate_of_a_group() -> None:
    unlinked = replace(H100, link_bandwidth=None)
    assert EstimateCase(accelerator=unlinked).try_estimate() is None
    assert EstimateCase(LLAMA_8B, unlinked, Parallelism()).try_estimate() is not None


def test_every_supported_architecture_has_figures() -> None:
    data = load_throughput_data()
    missing = {
        accelerator.id
        for accelerator in CATALOG.accelerators.values()
        if accelerator.supported and accelerator.bf16_flops and data.figures(accelerator) is None
    }
    assert missing == set()


def test_every_architecture_has_an_efficiency_for_16_bits() -> None:
    data = load_throughput_data()
    for figures in (*data.architectures.values(), *data.accelerators.values()):
        assert "bf16" in figures.compute_efficiency
        assert set(figures.compute_efficiency) <= {"bf16", "fp8", "fp4"}


def test_every_estimate_has_the_band_of_its_architecture_and_kind_of_model() -> None:
    bands = load_throughput_data().architectures["sm_90"].band
    assert BASE.estimate().band == bands.dense
    assert EstimateCase(DEEPSEEK_V3, parallelism=Parallelism(8)).estimate().band == bands.experts
