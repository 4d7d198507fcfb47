"""Properties of the KV cache plan for every model, release and parallelism."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.engines.shapes import layer, load_shape, with_layers
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.mixer_kinds import CompressedAttention, Mamba2
from tonnage.checkpoint.model import (
    Attention,
    LatentAttention,
    LinearAttention,
    Mixer,
    Mlp,
    ModelShape,
    SparseIndexer,
)
from tonnage.fit.batch import Batch
from tonnage.fit.kv_cache.plan import KvCachePlan, plan_kv_cache
from tonnage.fit.model import EngineOptions, Parallelism

CATALOG = load_catalog()
BASE = load_shape("llama-3.1-8b")
LENGTHS = st.integers(1, 1_048_576)
MEMORIES = st.integers(0, 2**40)
VERSIONS = st.sampled_from(
    ["0.6.3", "0.7.1", "0.7.3", "0.8.2", "0.8.5", "0.9.2", "0.11.0", "0.14.0", "0.16.0", "0.20.1",
     "0.28.0", "0.29.0", "0.32.0", "0.33.0"]
)  # fmt: skip


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    kv_heads = draw(st.sampled_from([1, 2, 8, 16]))
    head_dim = draw(st.sampled_from([64, 80, 128, 256]))
    return Attention(
        heads=16,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=draw(st.sampled_from([head_dim, 128])),
        window=draw(st.none() | st.integers(1, 16384)),
        chunked=draw(st.booleans()),
        stores_kv=draw(st.integers(0, 9)) > 0,
    )


LATENTS = st.builds(
    LatentAttention,
    heads=st.just(16),
    kv_lora_rank=st.just(512),
    qk_rope_head_dim=st.just(64),
    qk_nope_head_dim=st.just(128),
    v_head_dim=st.just(128),
    q_lora_rank=st.none(),
    indexer=st.none() | st.just(SparseIndexer(32, 128, 2048)),
    sparse=st.booleans(),
)
STATES = st.sampled_from([LinearAttention(16, 32, 128, 128, 4), Mamba2(64, 64, 128, 8, 4)])
MIXERS = st.lists(attentions() | STATES, min_size=1, max_size=3) | st.lists(
    LATENTS | STATES, min_size=1, max_size=3
)
COMPRESSED = st.lists(
    st.sampled_from(
        [
            CompressedAttention(16, 512, 64, 1024, 1024, 8, 128, ratio, 64 * (ratio == 4), 128)
            for ratio in (1, 4, 128)
        ]
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    mixers: list[Mixer] = [*draw(MIXERS | COMPRESSED)]
    counts = [draw(st.integers(1, 40)) for _ in mixers]
    kinds = [layer(mixer, Mlp(1024)) for mixer in mixers]
    shape = with_layers(BASE, *zip(kinds, counts, strict=True))
    return replace(shape, draft_layers=tuple(kinds[: draw(st.integers(0, 2))]))


@st.composite
def plans(draw: st.DrawFn) -> KvCachePlan:
    version = draw(VERSIONS)
    in_flight = draw(st.integers(1, 65_536))
    options = EngineOptions(
        version,
        4096,
        kv_cache_dtype=draw(st.sampled_from(["auto", "bfloat16", "fp8", "nvfp4"])),
        speculative_tokens=draw(st.integers(0, 3)),
        hybrid_kv_cache=draw(st.booleans()),
        enable_prefix_caching=draw(st.none() | st.booleans()),
    )
    return plan_kv_cache(
        draw(shapes()),
        Parallelism(draw(st.sampled_from([1, 2, 8, 16])), draw(st.sampled_from([1, 2]))),
        options,
        Batch(in_flight, 256, in_flight),
        CATALOG.accelerator(draw(st.sampled_from(["h200-sxm-141gb", "b200-180gb", "mi300x"]))),
        CATALOG.release(version),
    )


@given(plans(), LENGTHS, MEMORIES, MEMORIES)
def test_more_memory_never_holds_fewer_tokens(
    plan: KvCachePlan, length: int, memory: int, more: int
) -> None:
    assert plan.tokens(memory + more, length) >= plan.tokens(memory, length)


@given(plans(), LENGTHS, LENGTHS)
def test_a_longer_request_never_holds_less(plan: KvCachePlan, length: int, more: int) -> None:
    assert plan.request_bytes(length + more) >= plan.request_bytes(length) > 0


@given(plans(), LENGTHS, st.integers(1, 2**31))
def test_the_needed_bytes_hold_the_tokens_and_one_block_less_does_not(
    plan: KvCachePlan, length: int, tokens: int
) -> None:
    needed = plan.needed_bytes(tokens, length)
    assert plan.tokens(needed, length) >= tokens
    one_request = max(
        plan.request_bytes(length) + plan.null_blocks * plan.block_bytes,
        plan.request_blocks(length) * plan.checked_block_bytes,
    )
    assert needed >= one_request
    if needed > one_request:
        assert plan.tokens(needed - plan.block_bytes, length) < tokens


@given(shapes(), st.integers(1, 65_536))
def test_the_hybrid_manager_never_costs_a_token_more(shape: ModelShape, in_flight: int) -> None:
    """What one more token costs is the same or less where windows are bounded. Layers of different
    widths are another matter: pages of all groups have one size, to which smaller are filled up.
    """
    attentions = (mixer for mixer in shape.mixer_counts if isinstance(mixer, Attention))
    assume(len({one.kv_heads * (one.head_dim + one.value_head_dim) for one in attentions}) <= 1)
    grouped, promoted = (
        plan_kv_cache(
            shape,
            Parallelism(),
            EngineOptions("0.32.0", 4096, hybrid_kv_cache=hybrid),
            Batch(in_flight, 256, in_flight),
            CATALOG.accelerator("h200-sxm-141gb"),
            CATALOG.release("0.32.0"),
        )
        for hybrid in (True, False)
    )
    assert grouped.bytes_per_token <= promoted.bytes_per_token
