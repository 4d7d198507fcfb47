"""SGLang's pipeline stages: their layers, heads and pools are those of its own Python."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS
from tests.support.fleets.placing import CATALOG
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.checkpoint.shape import parse_config_text
from tonnage.fit.engines.sglang import SGLANG_MEMORY
from tonnage.fit.model import DoesNotFit, EngineOptions, MemoryFit, MemoryTerm, Parallelism
from tonnage.fit.questions.question import FitQuestion
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.model import Device, Replica, ServerOptions
from tonnage.fit.sglang.pools import size_pools_of_stages
from tonnage.fit.sglang.stages import check_stages, stage_sizes
from tonnage.fit.sglang.weights import sglang_weights

MEMORY = load_sglang_memory()
FREE, WEIGHTS = 83_164_256_010, 20_000_000_000
H100, MI300X = ("sm_90", 81559), ("gfx942", 196592)
ACCELERATOR = CATALOG.accelerator("h100-sxm-80gb")
RELEASE = CATALOG.release(None)
OPTIONS = EngineOptions(f"v{CATALOG.default_release}", 32768)


def shape_of(name: str) -> ModelShape:
    return parse_config_text((CONFIGS / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("layers", "stages", "want"),
    [
        (61, 2, (30, 31)),
        (80, 3, (26, 27, 27)),
        (94, 3, (31, 31, 32)),
        (32, 4, (8, 8, 8, 8)),
        (7, 1, (7,)),
    ],
)
def test_the_last_stages_have_the_remainder(
    layers: int, stages: int, want: tuple[int, ...]
) -> None:
    assert stage_sizes(layers, stages) == want


@pytest.mark.parametrize(
    ("model", "sizes", "device", "fraction", "tokens"),
    [
        ("deepseek-v3", (8, 2), H100, 0.805, [1_358_426, 1_314_606]),
        ("llama-3.3-70b", (4, 2), H100, 0.818, [1_172_567] * 2),
        ("llama-3.3-70b", (1, 3), H100, 0.832, [461_920, 444_812, 444_812]),
        ("gpt-oss-120b", (2, 2), H100, 0.831, [2_960_400] * 2),
        ("qwen3-235b-a22b-fp8", (8, 3), H100, 0.793, [2_894_988, 2_894_988, 2_804_519]),
        ("llama-3.1-8b", (1, 2), H100, 0.834, [753_158] * 2),
        ("deepseek-v3", (8, 2), MI300X, 0.72845, [1_174_218, 1_136_340]),
        ("llama-3.3-70b", (1, 3), MI300X, 0.73525, [386_366, 372_056, 372_056]),
        ("qwen3-235b-a22b-fp8", (8, 3), MI300X, 0.7242, [2_534_498, 2_534_498, 2_455_295]),
    ],
)
def test_the_pools_are_those_of_sglang(
    model: str,
    sizes: tuple[int, int],
    device: tuple[str, int],
    fraction: float,
    tokens: list[int],
) -> None:
    """As SGLang 0.5.23 configured each stage with the same weights, by
    tests/support/sglang_memory/configure.py on 2026-11-27."""
    tensor, stages = sizes
    options = ServerOptions(32768, tensor, stages)
    replica = Replica(shape_of(model), options, Device(*device))
    static = static_fraction(replica, MEMORY)
    assert static.fraction == pytest.approx(fraction, abs=1e-9)
    left = [int(FREE * static.fraction) - WEIGHTS] * stages
    pools = size_pools_of_stages(replica, left, MEMORY)
    assert [pool.tokens for pool in pools] == pytest.approx(tokens, rel=1e-5)


def embedding_bytes(shape: ModelShape) -> int:
    return shape.vocab_size * shape.hidden_size * 2


def weights_of(shape: ModelShape, stages: int) -> tuple[int, ...]:
    parallelism = Parallelism(pipeline=stages)
    return sglang_weights(Checkpoint(shape), parallelism, OPTIONS, ACCELERATOR, RELEASE)


@pytest.mark.parametrize(
    ("architecture", "heads"), [("LlamaForCausalLM", (1, 1)), ("Qwen3ForCausalLM", (0, 1))]
)
def test_some_classes_have_a_head_on_every_stage(architecture: str, heads: tuple[int, int]) -> None:
    shape = replace(shape_of("llama-3.1-8b"), architecture=architecture)
    first, last = weights_of(shape, 2)
    size = embedding_bytes(shape)
    layers = first - size * (1 + heads[0])
    assert layers == pytest.approx(last - size * heads[1], rel=1e-4)
    (whole,) = weights_of(shape, 1)
    assert 2 * layers + 2 * size == pytest.approx(whole, rel=3e-3)  # each has its own cosines


def test_a_tied_head_is_a_copy_on_the_last_stage() -> None:
    untied = replace(shape_of("llama-3.1-8b"), architecture="Qwen2ForCausalLM")
    tied = replace(untied, tie_word_embeddings=True)
    assert weights_of(tied, 2) == weights_of(untied, 2)
    assert weights_of(tied, 1) < weights_of(untied, 1)


@pytest.mark.parametrize(
    ("shape", "options", "why"),
    [
        ({"architecture": "MambaForCausalLM"}, {}, "stages of MambaForCausalLM are not calculated"),
        (
            {"tie_word_embeddings": True},
            {},
            "no output head for LlamaForCausalLM on the last stage",
        ),
        ({"layer_order": (0,)}, {}, "1 layers cannot fill 2 pipeline stages"),
        ({}, {"stated": frozenset({"--enable-pdmux"})}, "--enable-pdmux and pipeline stages"),
        ({}, {}, None),
    ],
)
def test_stages_that_do_not_run_are_refused_with_the_reason(
    shape: dict[str, Any], options: dict[str, Any], why: str | None
) -> None:
    model, given = replace(shape_of("llama-3.1-8b"), **shape), replace(OPTIONS, **options)
    illegal = check_stages(model, Parallelism(pipeline=2), given, MEMORY)
    assert (illegal is None) == (why is None)
    if illegal is not None:
        assert why is not None
        assert why in illegal.message
    assert check_stages(model, Parallelism(tensor=2), given, MEMORY) is None


def question_of(device_bytes: int) -> FitQuestion:
    return FitQuestion(
        Checkpoint(shape_of("deepseek-v3")),
        ACCELERATOR,
        device_bytes,
        Parallelism(8, 2, nodes=2),
        OPTIONS,
        memory=SGLANG_MEMORY,
    )


def test_the_stage_with_the_fewest_tokens_decides() -> None:
    assert ACCELERATOR.memory_bytes is not None
    question = question_of(ACCELERATOR.memory_bytes)
    verdict = SGLANG_MEMORY.judge(question, CATALOG)
    assert isinstance(verdict, MemoryFit)
    account, (first, last) = verdict.account, verdict.account.stages
    assert (first.layers, last.layers) == (30, 31)
    assert account.kv_cache_tokens == last.kv_cache_tokens < first.kv_cache_tokens
    assert account.weights_bytes == last.weights_bytes
    measured = SGLANG_MEMORY.measured_kv_bytes(account.kv_cache_tokens, question, CATALOG)
    assert measured == pytest.approx(account.kv_cache_bytes, rel=1e-4)
    most = SGLANG_MEMORY.most_requests(question, account, CATALOG)
    assert most == 4096


def test_weights_of_one_stage_that_do_not_fit_are_named() -> None:
    assert ACCELERATOR.memory_bytes is not None
    between = int(ACCELERATOR.memory_bytes * 0.66)
    verdict = SGLANG_MEMORY.judge(question_of(between), CATALOG)
    assert isinstance(verdict, DoesNotFit)
    assert verdict.term is MemoryTerm.WEIGHTS
    assert verdict.needed_bytes == verdict.account.stages[1].weights_bytes
