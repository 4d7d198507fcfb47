"""SGLang's memory: every choice of its own Python that the records have, and what is refused."""

from dataclasses import replace

import pytest

from accuracy.sglang import SGLangLayout, sglang_layouts
from tests.support.engines.shapes import CONFIGS
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.checkpoint.shape import parse_config_text
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.model import Device, NotCalculatedError, Replica, ServerOptions
from tonnage.fit.sglang.pools import size_pools

MEMORY = load_sglang_memory()
LLAMA = parse_config_text((CONFIGS / "llama-3.1-8b.json").read_text())
MI300X = Device("gfx942", 196592)
ON_MI300X = Replica(LLAMA, ServerOptions(context_length=131072), MI300X)


@pytest.mark.parametrize("layout", sglang_layouts(), ids=lambda layout: layout.id)
def test_choices_are_those_of_sglang(layout: SGLangLayout) -> None:
    static, pools = layout.calculate()
    assert static.fraction == pytest.approx(layout.mem_fraction_static)
    assert static.chunked_prefill == layout.chunked_prefill_size
    assert pools.tokens == pytest.approx(layout.kv_cache_tokens, rel=1e-5)
    assert pools.max_requests == layout.max_running_requests


@pytest.mark.parametrize(
    ("options", "want_fraction"),
    [
        ({"context_length": 8192}, 0.867),
        ({"context_length": 8193}, 0.867 * 0.85),
        ({"context_length": 8193, "mem_fraction_static": 0.8}, 0.8 * 0.85),
    ],
)
def test_aiter_takes_memory_from_long_contexts_only(options, want_fraction: float) -> None:
    replica = replace(ON_MI300X, options=ServerOptions(**options))
    assert static_fraction(replica, MEMORY).fraction == pytest.approx(want_fraction)


def test_a_pool_without_memory_has_no_tokens() -> None:
    pools = size_pools(ON_MI300X, -1, MEMORY)
    assert (pools.tokens, pools.max_requests) == (0, 0)


@pytest.mark.parametrize(
    ("replica", "want_message"),
    [
        (replace(ON_MI300X, device=Device("sm_89", 49140)), "architecture sm_89"),
        (
            replace(ON_MI300X, options=ServerOptions(4096, kv_cache_dtype="nvfp4")),
            "KV cache dtype 'nvfp4'",
        ),
        (
            replace(
                ON_MI300X,
                shape=parse_config_text((CONFIGS / "kimi-linear-48b-a3b.json").read_text()),
            ),
            "DeltaAttention",
        ),
    ],
)
def test_what_is_not_calculated_is_named(replica: Replica, want_message: str) -> None:
    with pytest.raises(NotCalculatedError, match=want_message):
        size_pools(replica, 2**30, MEMORY)
