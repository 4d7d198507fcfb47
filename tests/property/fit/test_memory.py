"""Properties of the fit calculation for every model."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.engines.shapes import layer
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import (
    Attention,
    Checkpoint,
    DType,
    Experts,
    FeedForward,
    LatentAttention,
    LinearAttention,
    Mixer,
    Mlp,
    ModelShape,
    Quantization,
)
from tonnage.fit.activation.peak import activation_peak
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.kv_cache.plan import plan_kv_cache
from tonnage.fit.legality.parallelism import legal_degrees
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import EngineOptions, IllegalParallelism, MemoryFit, Parallelism
from tonnage.fit.weights.total import weights_by_stage

CATALOG = load_catalog()
RELEASES = st.sampled_from(sorted(CATALOG.releases))
DEVICES = st.sampled_from(
    sorted(entry.id for entry in CATALOG.accelerators.values() if entry.memory_bytes)
)

QUANTIZATIONS = st.none() | st.sampled_from(
    [
        Quantization("fp8", 8, block=(128, 128)),
        Quantization("fp8", 8),
        Quantization("awq", 4, group_size=128, scale_bits=20, is_float=False),
        Quantization("mxfp4", 4, group_size=32, scale_bits=8, experts_only=True),
        Quantization("modelopt", 4, group_size=16, scale_bits=8, kv_cache_bits=8),
    ]
)


@st.composite
def mixers(draw: st.DrawFn) -> Mixer:
    kv_heads = draw(st.integers(1, 16))
    head_dim = draw(st.sampled_from([64, 80, 128, 256]))
    heads = kv_heads * draw(st.integers(1, 16))
    window = draw(st.none() | st.integers(1, 8192))
    return draw(
        st.sampled_from(
            [
                Attention(heads, kv_heads, head_dim, head_dim, window=window),
                LatentAttention(heads, 512, 64, 128, 128, 1536),
                LinearAttention(16, 32, 128, 128, 4),
            ]
        )
    )


@st.composite
def feed_forwards(draw: st.DrawFn) -> FeedForward:
    if draw(st.booleans()):
        return Experts(draw(st.integers(1, 512)), 1, draw(st.integers(64, 8192)))
    return Mlp(draw(st.integers(64, 65536)), gated=draw(st.booleans()))


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    hidden_size = draw(st.integers(64, 16384))
    kinds = draw(
        st.lists(st.builds(layer, mixers(), feed_forwards()), min_size=1, max_size=2, unique=True)
    )
    order = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=100))
    return ModelShape(
        architecture="LlamaForCausalLM",
        model_type="llama",
        dtype=draw(st.sampled_from(DType)),
        hidden_size=hidden_size,
        vocab_size=draw(st.integers(1, 300_000)),
        tie_word_embeddings=draw(st.booleans()),
        max_position_embeddings=draw(st.integers(1024, 262_144)),
        layer_kinds=tuple(kinds),
        layer_order=tuple(order),
        quantization=draw(QUANTIZATIONS),
    )


def options(version: str, length: int = 4096) -> EngineOptions:
    return EngineOptions(f"v{version}", length)


@given(shapes(), DEVICES, RELEASES)
def test_more_gpus_never_hold_more_weights_each(
    shape: ModelShape, device: str, version: str
) -> None:
    accelerator, release = CATALOG.accelerator(device), CATALOG.release(version)
    chosen = options(version)
    held = [
        max(weights_by_stage(Checkpoint(shape), split, chosen, accelerator, release))
        for split in legal_degrees(shape, chosen, release, 8)
    ]
    assert held == sorted(held, reverse=True)


@given(shapes(), RELEASES, st.integers(0, 16))
def test_legal_degrees_divide_the_heads(shape: ModelShape, version: str, gpus: int) -> None:
    degrees = legal_degrees(shape, options(version), CATALOG.release(version), gpus)
    assert all(shape.attention_heads % degree.tensor == 0 for degree in degrees)
    assert all(degree.gpus <= gpus for degree in degrees)
    assert list(degrees) == sorted(degrees, key=lambda degree: degree.gpus)


@given(shapes(), DEVICES, RELEASES, st.sampled_from([1, 2, 4, 8]))
def test_more_utilization_never_leaves_less_for_the_cache(
    shape: ModelShape, device: str, version: str, tensor: int
) -> None:
    accelerator = CATALOG.accelerator(device)
    assert accelerator.memory_bytes is not None
    left = []
    for utilization in (0.5, 0.8, 0.9, 0.92, 1.0):
        chosen = replace(options(version), gpu_memory_utilization=utilization)
        verdict = judge_fit(
            Checkpoint(shape), accelerator, accelerator.memory_bytes, Parallelism(tensor), chosen,
            4096, CATALOG,
        )  # fmt: skip
        assume(not isinstance(verdict, IllegalParallelism))
        assert not isinstance(verdict, IllegalParallelism)
        left.append(verdict.account.kv_cache_bytes)
    assert left == sorted(left)


@given(shapes(), DEVICES, RELEASES, st.sampled_from([1, 2, 4, 8]), st.integers(1, 4096))
def test_more_sequences_or_tokens_a_step_never_leave_more(
    shape: ModelShape, device: str, version: str, tensor: int, sequences: int
) -> None:
    accelerator, release = CATALOG.accelerator(device), CATALOG.release(version)
    peaks = [
        activation_peak(
            shape, Parallelism(tensor), options(version), Batch(tokens, seqs, tokens), accelerator,
            release,
        ).total_bytes
        for tokens, seqs in ((4096, max(1, sequences // 2)), (4096, sequences), (8192, sequences))
    ]  # fmt: skip
    fewest, more, most = peaks
    # Fewer than 128 rows are sorted in another way, which takes a third more a row.
    assert fewest <= more * 50 / 38
    assert more <= most


@given(shapes(), DEVICES, RELEASES, st.sampled_from([1, 2, 4, 8]), st.integers(1, 200_000))
def test_a_fit_holds_the_requested_tokens_within_the_budget(
    shape: ModelShape, device: str, version: str, tensor: int, length: int
) -> None:
    accelerator = CATALOG.accelerator(device)
    assert accelerator.memory_bytes is not None
    fit = judge_fit(
        Checkpoint(shape), accelerator, accelerator.memory_bytes, Parallelism(tensor),
        options(version, length), length, CATALOG,
    )  # fmt: skip
    assume(isinstance(fit, MemoryFit))
    assert isinstance(fit, MemoryFit)
    assert fit.account.kv_cache_tokens >= fit.required_tokens == length
    used = (
        fit.account.weights_bytes
        + fit.account.activation_bytes
        + fit.account.non_torch_bytes
        + fit.account.graph_bytes
    )
    assert used + fit.account.kv_cache_bytes == fit.account.budget_bytes <= fit.account.device_bytes


@given(shapes(), RELEASES, st.integers(1, 100_000), st.integers(1, 100_000))
def test_longer_requests_need_no_less_memory(
    shape: ModelShape, version: str, shorter: int, more: int
) -> None:
    accelerator, release = CATALOG.accelerator("mi300x"), CATALOG.release(version)
    assert accelerator.memory_bytes is not None
    # The batch does not depend on the length from here on, so only the length differs.
    chosen = replace(options(version), max_num_batched_tokens=2048)
    batch = plan_batch(shape, chosen, Parallelism(), accelerator, accelerator.memory_bytes, release)
    needed = [
        plan_kv_cache(
            shape, Parallelism(), replace(chosen, max_model_len=length), batch, accelerator, release
        ).needed_bytes(length, length)
        for length in (shorter, shorter + more)
    ]
    assert needed == sorted(needed)
