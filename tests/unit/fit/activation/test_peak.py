"""The activation peak against what start-up logs print, and what it follows."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.catalog.vllm.profiling import ProfiledSampler
from tonnage.checkpoint.model import Encoder, ModelShape
from tonnage.fit.activation.layer_peak import expert_width, layer_width
from tonnage.fit.activation.peak import activation_peak
from tonnage.fit.activation.sampler import profiled_sampler, sampling_bytes
from tonnage.fit.batch import Batch
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.matrix import Sharding

CATALOG = load_catalog()
GIB = 1024**3
ONE = Parallelism()


def peak(
    shape: ModelShape,
    version: str,
    accelerator: str,
    batch: tuple[int, int],
    parallelism: Parallelism = ONE,
    options: EngineOptions | None = None,
) -> int:
    release = CATALOG.release(version)
    return activation_peak(
        shape,
        parallelism,
        options or EngineOptions(version, 32768),
        Batch(*batch, batch[0]),
        CATALOG.accelerator(accelerator),
        release,
    ).total_bytes


# Shape, release, device, tokens and sequences of a step, GiB as printed.
PRINTED: list[tuple[str, str, str, tuple[int, int], float]] = [
    ("llama-3.1-8b", "v0.11.2", "h100-sxm-80gb", (8192, 1024), 4.76),
    ("llama-3.3-70b-fp8-dynamic", "v0.11.2", "h100-sxm-80gb", (8192, 1024), 4.84),
    ("gpt-oss-120b", "v0.11.2", "h100-sxm-80gb", (8192, 1024), 7.38),
    ("llama-3.1-8b", "v0.6.4", "h100-sxm-80gb", (8192, 256), 1.26),
    ("llama-3.3-70b", "v0.6.4", "h200-sxm-141gb", (512, 256), 1.21),
]


@pytest.mark.parametrize(("name", "version", "accelerator", "batch", "want_gib"), PRINTED)
def test_the_peak_equals_that_of_the_logs(
    name: str, version: str, accelerator: str, batch: tuple[int, int], want_gib: float
) -> None:
    assert peak(load_shape(name), version, accelerator, batch) / GIB == pytest.approx(
        want_gib, abs=0.01
    )


def test_tensor_parallelism_does_not_change_a_peak_in_the_sampler() -> None:
    shape = load_shape("llama-3.3-70b")
    whole = peak(shape, "v0.11.2", "h100-sxm-80gb", (8192, 1024))
    assert peak(shape, "v0.11.2", "h100-sxm-80gb", (8192, 1024), Parallelism(8)) == whole


BYTES_A_LOGIT: list[tuple[str, ProfiledSampler, int, float]] = [
    ("a sort has indices and a second buffer", ProfiledSampler.SORT, 1024, 38),
    ("fewer rows are sorted at once", ProfiledSampler.SORT, 127, 50),
    ("a filter works in place and draws", ProfiledSampler.FILTER, 128, 14 + 4),
    ("a filter's own rows do not grow", ProfiledSampler.FILTER, 1024, 14 + 4 / 8),
    ("the logits alone", ProfiledSampler.GUMBEL, 1024, 2),
]


@pytest.mark.parametrize(("what", "sampler", "rows", "want"), BYTES_A_LOGIT)
def test_copies_of_the_logits(what: str, sampler: ProfiledSampler, rows: int, want: float) -> None:
    held = sampling_bytes(sampler, rows, 1000, tensor=1, buffer_rows=128)
    assert held == want * rows * 1000, what


def test_gathered_logits_are_held_twice_and_a_part_of_them() -> None:
    held = sampling_bytes(ProfiledSampler.GUMBEL, 1024, 1000, tensor=4, buffer_rows=128)
    assert held == 1024 * 1000 * (2 + 2 + 0.5)


SAMPLERS: list[tuple[str, str, str, ProfiledSampler]] = [
    ("v0.16.0", "llama-3.1-8b", "h100-sxm-80gb", ProfiledSampler.SORT),
    ("v0.17.1", "llama-3.1-8b", "mi300x", ProfiledSampler.FILTER),
    ("v0.22.1", "llama-3.1-8b", "h100-sxm-80gb", ProfiledSampler.FILTER),
    ("v0.23.0", "llama-3.1-8b", "h100-sxm-80gb", ProfiledSampler.GUMBEL_COPY),
    ("v0.23.0", "llama-3.3-70b-fp8-dynamic", "h100-sxm-80gb", ProfiledSampler.FILTER),
    ("v0.24.0", "llama-3.3-70b-fp8-dynamic", "h100-sxm-80gb", ProfiledSampler.GUMBEL_COPY),
    ("v0.24.0", "gemma-3-27b", "h100-sxm-80gb", ProfiledSampler.FILTER),
    ("v0.25.1", "gemma-3-27b", "h100-sxm-80gb", ProfiledSampler.GUMBEL_COPY),
    ("v0.26.0", "llama-3.1-8b", "h100-sxm-80gb", ProfiledSampler.GUMBEL_COPY),
    ("v0.26.0", "mixtral-8x7b", "h100-sxm-80gb", ProfiledSampler.FILTER),
    ("v0.26.0", "qwen3.5-397b-a17b", "h100-sxm-80gb", ProfiledSampler.FILTER),
    ("v0.28.0", "llama-3.1-8b", "h100-sxm-80gb", ProfiledSampler.GUMBEL),
    ("v0.32.0", "qwen3.5-397b-a17b", "mi300x", ProfiledSampler.GUMBEL),
    ("v0.33.0", "qwen3.5-397b-a17b", "mi300x", ProfiledSampler.FILTER),
]


@pytest.mark.parametrize(("version", "name", "accelerator", "want"), SAMPLERS)
def test_which_sampler_is_profiled(
    version: str, name: str, accelerator: str, want: ProfiledSampler
) -> None:
    run = CATALOG.release(version).profile_run
    vendor = CATALOG.accelerator(accelerator).vendor
    assert profiled_sampler(run, vendor, load_shape(name)) is want


def test_with_few_sequences_the_forward_pass_is_the_peak() -> None:
    shape = load_shape("llama-3.3-70b")
    width = 2 * 8192 + 8192 + 3 * 28672
    assert layer_width(shape, Sharding()) == width
    held = peak(shape, "v0.22.1", "h100-sxm-80gb", (8192, 8))
    assert held == 8192 * width * 2 + 32 * 1024**2
    halved = peak(shape, "v0.22.1", "h100-sxm-80gb", (8192, 8), Parallelism(2))
    assert halved < held, "what is split is shared out"


def test_the_second_runner_keeps_counters_for_penalties() -> None:
    shape = load_shape("llama-3.1-8b")
    before, after = (
        peak(shape, version, "h100-sxm-80gb", (8192, 1024)) for version in ("v0.26.0", "v0.27.0")
    )
    assert after - before == 1024 * 128_256 * 33 // 8
    routed = load_shape("mixtral-8x7b")
    peaks = {peak(routed, v, "h100-sxm-80gb", (8192, 1024)) for v in ("v0.26.0", "v0.27.0")}
    assert len(peaks) == 1, "it runs on the first runner still"


def test_routed_tokens_are_held_once_for_each_of_their_experts() -> None:
    shape = load_shape("mixtral-8x7b")
    assert expert_width(shape, Sharding()) == 2 * (14336 + 2 * 14336)
    assert expert_width(shape, Sharding(tensor=8)) == 2 * (4096 + 4096)
    assert expert_width(shape, Sharding(tensor=8, expert_parallel=True)) == 2 * (14336 + 2 * 14336)


def test_experts_work_in_chunks_where_the_release_does() -> None:
    shape = load_shape("mixtral-8x7b")
    longer = peak(shape, "v0.19.0", "mi300x", (65536, 8))
    chunk = 16384 * expert_width(shape, Sharding()) * 2
    states = 65536 * layer_width(shape, Sharding()) * 2
    assert longer == chunk + states + 128 * 1024**2


def test_experts_process_the_tokens_of_all_data_parallel_ranks() -> None:
    shape, release = load_shape("mixtral-8x7b"), "v0.32.0"
    options = EngineOptions(release, 32768, enable_expert_parallel=True)
    alone, shared = (
        peak(shape, release, "mi300x", (4096, 8), Parallelism(data=data), options)
        for data in (1, 8)
    )
    width = expert_width(shape, Sharding(expert_parallel=True))
    assert shared - alone == (7 * 4096 * width + 8 * 4096 * shape.hidden_size) * 2


def test_a_kept_workspace_adds_to_the_peak_of_the_sampler() -> None:
    shape = load_shape("mixtral-8x7b")
    freed = peak(shape, "v0.12.0", "h200-sxm-141gb", (8192, 1024), Parallelism(8))
    kept = peak(shape, "v0.14.0", "h200-sxm-141gb", (8192, 1024), Parallelism(8))
    assert kept - freed == 8192 * expert_width(shape, Sharding(tensor=8)) * 2


def test_latent_attention_expands_a_context() -> None:
    shape = load_shape("deepseek-v3")
    few = (16, 8)
    long = peak(shape, "v0.32.0", "h200-sxm-141gb", few, Parallelism(8))
    assert long > 65536 * (128 // 8) * 256 * 2
    short = EngineOptions("v0.32.0", 1024)
    assert peak(shape, "v0.32.0", "h200-sxm-141gb", few, Parallelism(8), short) < long / 4


def test_latent_attention_expands_no_more_than_64k_tokens() -> None:
    shape = load_shape("deepseek-v3")
    peaks = {
        peak(shape, "v0.32.0", "h200-sxm-141gb", (16, 8), ONE, EngineOptions("v0.32.0", length))
        for length in (8192, 131_072)
    }
    assert len(peaks) == 1


def with_encoder(architecture: str) -> ModelShape:
    return replace(
        load_shape("llama-3.1-8b"), architecture=architecture, encoders=(Encoder(600_000_000),)
    )


def test_a_padded_clip_needs_the_most_memory() -> None:
    shape = replace(with_encoder("Qwen3VLForConditionalGeneration"), hidden_size=2048)
    without_encoder = replace(shape, encoders=())
    added = peak(shape, "v0.12.0", "h100-sxm-80gb", (8192, 64)) - peak(
        without_encoder, "v0.12.0", "h100-sxm-80gb", (8192, 64)
    )
    # Padded outputs of 153,600 tokens with three more states each: 2.34 GiB of the 2.7 printed.
    assert added / GIB == pytest.approx(2.8, abs=0.2)


def test_later_releases_do_not_pad() -> None:
    shape = with_encoder("Qwen3VLForConditionalGeneration")
    padded = peak(shape, "v0.12.0", "h100-sxm-80gb", (8192, 8))
    assert peak(shape, "v0.14.0", "h100-sxm-80gb", (8192, 8)) < padded - 3 * GIB


def test_longer_requests_allow_longer_clips() -> None:
    shape = with_encoder("Qwen2_5_VLForConditionalGeneration")
    short, long = (EngineOptions("v0.32.0", length) for length in (8192, 131_072))
    peaks = [peak(shape, "v0.32.0", "mi300x", (8192, 8), ONE, chosen) for chosen in (short, long)]
    assert peaks[1] > 5 * peaks[0]


def test_an_encoder_decoder_encodes_an_image_for_every_sequence() -> None:
    shape = with_encoder("MllamaForConditionalGeneration")
    # 256 images of four tiles, as the log of a run that died shows.
    assert peak(shape, "v0.6.3", "l4", (5120, 256)) > 24 * GIB


def test_v0_samples_for_as_many_sequences_as_it_has_images() -> None:
    shape = replace(with_encoder("Gemma3ForConditionalGeneration"), vocab_size=4_000_000)
    without_encoder = replace(shape, encoders=())
    # 5,120 tokens hold 20 images of 256: 20 rows of logits instead of 256.
    assert (
        peak(shape, "v0.7.3", "l4", (5120, 256))
        < peak(without_encoder, "v0.7.3", "l4", (5120, 256)) / 4
    )


def test_an_encoder_that_is_not_loaded_takes_nothing() -> None:
    shape = with_encoder("Qwen3VLForConditionalGeneration")
    deaf = EngineOptions("v0.32.0", 32768, language_model_only=True)
    without_encoder = replace(shape, encoders=())
    batch = (8192, 64)
    assert peak(shape, "v0.32.0", "mi300x", batch, ONE, deaf) == peak(
        without_encoder, "v0.32.0", "mi300x", batch
    )


def test_an_unknown_encoder_counts_as_a_typical_one() -> None:
    known = with_encoder("Qwen3_5ForConditionalGeneration")
    unknown = with_encoder("SomethingNewForConditionalGeneration")
    peaks = [peak(shape, "v0.32.0", "mi300x", (8192, 64)) for shape in (known, unknown)]
    assert 0.25 * peaks[0] < peaks[1] < peaks[0]
