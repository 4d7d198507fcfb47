"""The batch that is planned for, and what it costs beside weights and cache."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Vendor
from tonnage.checkpoint.config import parse_config
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.overheads import activation_bytes, graph_bytes, non_torch_bytes

CATALOG = load_catalog()
RELEASE = CATALOG.release("v0.32.0")
CONFIGS = Path(__file__).parents[1] / "data" / "configs"
OPTIONS = EngineOptions("v0.32.0", 32768)
GIB = 1024**3


def load(name: str) -> ModelShape:
    return parse_config(json.loads((CONFIGS / f"{name}.json").read_text()))


def batch(options: EngineOptions, accelerator_id: str, parallelism: Parallelism) -> Batch:
    accelerator = CATALOG.accelerator(accelerator_id)
    assert accelerator.memory_bytes is not None
    release = CATALOG.release(options.vllm_version)
    return plan_batch(options, parallelism, accelerator.memory_bytes, accelerator.id, release)


BATCHES: list[tuple[str, EngineOptions, str, Parallelism, Batch]] = [
    ("MI300X", OPTIONS, "mi300x", Parallelism(), Batch(16384, 1024, 32768)),
    ("H100", OPTIONS, "h100-sxm-80gb", Parallelism(), Batch(8192, 1024, 16384)),
    ("A100 has the small one", OPTIONS, "a100-sxm-80gb", Parallelism(), Batch(2048, 256, 4096)),
    ("a pipeline has more under way", OPTIONS, "h100-sxm-80gb", Parallelism(1, 2),
     Batch(8192, 1024, 24576)),
    ("before asynchronous scheduling", replace(OPTIONS, vllm_version="v0.27.1"),
     "h100-sxm-80gb", Parallelism(), Batch(8192, 1024, 8192)),
    ("as asked for", replace(OPTIONS, max_num_seqs=64, max_num_batched_tokens=4096),
     "mi300x", Parallelism(), Batch(4096, 64, 8192)),
    ("short requests fill less", EngineOptions("v0.32.0", 16, max_num_seqs=64), "mi300x",
     Parallelism(), Batch(1024, 64, 2048)),
    ("no more sequences than tokens", replace(OPTIONS, max_num_batched_tokens=512),
     "mi300x", Parallelism(), Batch(512, 512, 1024)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "options", "accelerator", "parallelism", "want"), BATCHES)
def test_batches(
    what: str, options: EngineOptions, accelerator: str, parallelism: Parallelism, want: Batch
) -> None:
    assert batch(options, accelerator, parallelism) == want, what


# What H100 logs print with 1024 sequences, GiB.
PRINTED: list[tuple[str, float]] = [
    ("llama-3.1-8b", 4.76),
    ("llama-3.3-70b-fp8-dynamic", 4.84),
    ("gpt-oss-120b", 7.38),
]


@pytest.mark.parametrize(("name", "want_gib"), PRINTED)
def test_the_peak_follows_the_vocabulary(name: str, want_gib: float) -> None:
    peak = activation_bytes(load(name), Parallelism(), Batch(8192, 1024, 8192), RELEASE)
    assert peak / GIB == pytest.approx(want_gib, rel=0.03)


def test_with_few_sequences_the_forward_pass_is_the_peak() -> None:
    shape = load("llama-3.3-70b")
    peak = activation_bytes(shape, Parallelism(), Batch(8192, 8, 8192), RELEASE)
    assert peak == 8192 * (6 * 8192 + 2 * 28672) * 2
    halved = activation_bytes(shape, Parallelism(2), Batch(8192, 8, 8192), RELEASE)
    assert halved < peak, "the MLP's part is shared out"


def test_routed_tokens_are_held_once_for_each_of_their_experts() -> None:
    shape = load("mixtral-8x7b")
    dense = replace(shape, experts=None)
    few = Batch(8192, 8, 8192)
    routed = activation_bytes(shape, Parallelism(), few, RELEASE)
    assert routed - activation_bytes(dense, Parallelism(), few, RELEASE) == (
        8192 * 2 * (2 * 14336 + 14336) * 2
    )


def test_the_smallest_model_has_a_peak_too() -> None:
    shape = replace(load("llama-3.1-8b"), vocab_size=64, hidden_size=64, intermediate_size=64)
    assert activation_bytes(shape, Parallelism(), Batch(1, 1, 1), RELEASE) == GIB // 2


def test_communication_grows_with_the_degree() -> None:
    held = [non_torch_bytes(Parallelism(n), Vendor.AMD, RELEASE) for n in (1, 2, 4, 8, 16)]
    assert held[:4] == sorted(set(held))
    assert held[4] == held[3], "beyond the table the largest entry stands"


def test_graphs_count_where_the_release_subtracts_them() -> None:
    assert graph_bytes(Parallelism(), OPTIONS, Vendor.AMD, RELEASE) > 0
    eager = replace(OPTIONS, enforce_eager=True)
    assert graph_bytes(Parallelism(), eager, Vendor.AMD, RELEASE) == 0
    before = CATALOG.release("v0.20.1")
    assert graph_bytes(Parallelism(), OPTIONS, Vendor.AMD, before) == 0
