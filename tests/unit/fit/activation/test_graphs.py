"""Graphs, non-torch memory, and memory that must stay free outside the budget."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Vendor
from tonnage.catalog.vllm.profiling import CaptureSizes
from tonnage.fit.activation.graphs import count_sizes, graph_bytes
from tonnage.fit.activation.peak import ActivationPeak
from tonnage.fit.batch import Batch
from tonnage.fit.budget import budget_bytes, outside_budget_terms
from tonnage.fit.calibration.uncertainty import band_bytes
from tonnage.fit.degrees import lookup_by_gpus
from tonnage.fit.model import EngineOptions, MemoryTerm, Parallelism
from tonnage.fit.non_torch import non_torch_bytes

CATALOG = load_catalog()
H100 = CATALOG.accelerator("h100-sxm-80gb")
LLAMA = load_shape("llama-3.1-8b")
GIB = 1024**3
V0, FIRST, STEPPED = (
    CATALOG.release(version).graphs.capture_sizes for version in ("0.7.3", "0.8.3", "0.11.1")
)


SIZES: list[tuple[str, CaptureSizes, int, int, int]] = [
    ("V0: 1, 2, 4, 8 ... 256", V0, 256, 8192, 35),
    ("V0 up to its sequences", V0, 64, 8192, 11),
    ("the first V1 up to 512, however few sequences", FIRST, 2, 8192, 67),
    ("then twice the sequences", STEPPED, 16, 2048, 7),
    ("one sequence", STEPPED, 1, 2048, 2),
    ("steps of 16 from 256 on", STEPPED, 1024, 8192, 51),
    ("no size beyond the batch", STEPPED, 1024, 64, 11),
]


@pytest.mark.parametrize(("what", "rule", "sequences", "tokens", "want"), SIZES)
def test_captured_sizes(
    what: str, rule: CaptureSizes, sequences: int, tokens: int, want: int
) -> None:
    assert count_sizes(rule, "sm_90", "LlamaForCausalLM", sequences, tokens) == want, what


def test_blackwell_captures_larger_batches_from_some_release_on() -> None:
    rules = [CATALOG.release(version).graphs.capture_sizes for version in ("0.27.0", "0.28.0")]
    counted = [count_sizes(rule, "sm_100", "LlamaForCausalLM", 1024, 16384) for rule in rules]
    assert counted == [51, 83]


def test_gpt_oss_captures_up_to_1024_however_few_sequences() -> None:
    counted = [
        count_sizes(STEPPED, "sm_90", architecture, sequences, 8192)
        for architecture, sequences in (("GptOssForCausalLM", 16), ("LlamaForCausalLM", 1024))
    ]
    assert counted == [83, 51]


def graphs(version: str, batch: Batch, parallelism: Parallelism, *, eager: bool = False) -> int:
    options = EngineOptions(version, 32768, enforce_eager=eager)
    release = CATALOG.release(version)
    return graph_bytes(LLAMA, parallelism, options, batch, H100, release)


# Llama-3.1-8B: release, batch, degree, GiB that capturing took as printed.
PRINTED: list[tuple[str, Batch, int, float]] = [
    ("v0.17.1", Batch(2048, 256, 2048), 1, 0.50),
    ("v0.11.0", Batch(2048, 128, 2048), 1, 0.38),
    ("v0.13.0", Batch(8192, 1024, 8192), 4, 0.63),
]


@pytest.mark.parametrize(("version", "batch", "tensor", "want_gib"), PRINTED)
def test_graphs_cost_about_what_logs_print(
    version: str, batch: Batch, tensor: int, want_gib: float
) -> None:
    assert graphs(version, batch, Parallelism(tensor)) / GIB == pytest.approx(want_gib, rel=0.15)


def test_the_second_runner_captures_nearly_twice_as_much() -> None:
    batch = Batch(8192, 1024, 8192)
    first, second = (graphs(version, batch, Parallelism()) for version in ("v0.21.0", "v0.23.0"))
    assert second == pytest.approx(1.81 * first, rel=0.01)


def test_eager_mode_and_pipelines_have_fewer() -> None:
    batch = Batch(8192, 256, 8192)
    assert graphs("v0.32.0", batch, Parallelism(), eager=True) == 0
    whole, half = (graphs("v0.32.0", batch, Parallelism(1, stages)) for stages in (1, 2))
    assert half * 33 == whole * 17


def test_graphs_move_into_the_budget_with_the_release() -> None:
    owners = [CATALOG.release(v).graphs.in_budget_of for v in ("0.19.0", "0.20.0", "0.26.0")]
    assert owners == [set(), {Vendor.NVIDIA}, {Vendor.NVIDIA, Vendor.AMD}]


def test_terms_in_the_budget_need_no_free_memory() -> None:
    captured = GIB
    context = CATALOG.release("0.32.0").libraries.context_bytes[Vendor.NVIDIA]

    def outside(version: str, *, estimated: bool = True) -> tuple[int, ...]:
        options = EngineOptions(version, 8192, graphs_in_budget=estimated)
        shape, release = load_shape("llama-3.1-8b"), CATALOG.release(version)
        terms = outside_budget_terms(shape, Vendor.NVIDIA, captured, options, release)
        assert [term for term, _ in terms] == [MemoryTerm.NON_TORCH, MemoryTerm.GRAPHS]
        return tuple(needed for _, needed in terms)

    assert outside("0.8.3") == (0, captured)
    assert outside("0.12.0") == (context, captured)
    assert outside("0.21.0") == (context, 0), "model runner V1"
    assert outside("0.23.0") == (context, captured), "model runner V2 does not estimate them"
    assert outside("0.32.0") == (context, 0)
    assert outside("0.32.0", estimated=False) == (context, captured)


def test_the_budget_is_a_share_of_the_device() -> None:
    release = CATALOG.release("0.32.0")
    options = EngineOptions("v0.32.0", 8192)
    assert budget_bytes(1000, options, release) == 920
    assert budget_bytes(1001, replace(options, gpu_memory_utilization=0.5), release) == 501


def test_communication_grows_with_the_number_of_gpus() -> None:
    release = CATALOG.release("0.32.0")
    for vendor in Vendor:
        held = [non_torch_bytes(Parallelism(n), vendor, release) for n in (1, 2, 4, 8)]
        assert held == sorted(set(held))


def test_numbers_in_between_take_the_larger_entry() -> None:
    table = {1: 10, 2: 20, 8: 80}
    assert [lookup_by_gpus(table, gpus) for gpus in (1, 2, 3, 8, 16)] == [10, 20, 80, 80, 80]


def test_errors_of_the_terms_add_like_independent_ones() -> None:
    known = CATALOG.release("0.32.0").uncertainty
    held = [
        band_bytes(vendor, weights, ActivationPeak(5 * GIB, encoded), GIB, known)
        for vendor, weights, encoded in (
            (Vendor.NVIDIA, 10 * GIB, 0),
            (Vendor.NVIDIA, 100 * GIB, 0),
            (Vendor.NVIDIA, 100 * GIB, 4 * GIB),
            (Vendor.AMD, 100 * GIB, 4 * GIB),
        )
    ]
    assert held == sorted(set(held)), "more weights, images and thin evidence widen the band"
    assert held[1] < 0.01 * 100 * GIB + 0.2 * 5 * GIB + GIB
