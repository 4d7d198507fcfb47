"""Workspace buffers, against what vLLM 0.32.0's constructors leave on the GPU."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Encoder, ModelShape
from tonnage.fit.activation.workspaces import workspace_bytes
from tonnage.fit.batch import Batch
from tonnage.fit.model import EngineOptions, Parallelism

CATALOG = load_catalog()
OPTIONS = EngineOptions("v0.32.0", 163_840)
H200 = Batch(max_num_batched_tokens=8192, max_num_seqs=1024, in_flight_tokens=16384)


def held(
    shape: ModelShape, tensor: int, options: EngineOptions = OPTIONS, card: str = "h200-sxm-141gb"
) -> int:
    return workspace_bytes(shape, Parallelism(tensor), options, H200, CATALOG.accelerator(card))


def sparse() -> ModelShape:
    """The shape of DeepSeek-V3.2."""
    return load_shape("deepseek-v3", index_n_heads=64, index_head_dim=128, index_topk=2048)


def test_a_dense_model_has_no_workspaces() -> None:
    assert held(load_shape("llama-3.1-8b"), 1) == 0


def test_feature_maps_follow_the_batch_and_the_width() -> None:
    encoder = Encoder(1, deepstack_levels=3)
    shape = replace(load_shape("llama-3.1-8b"), encoders=(encoder,))
    assert held(shape, 1) == held(shape, 8) == 3 * 8192 * 4096 * 2


def test_models_with_encoders_allocate_embeddings_of_each_layer() -> None:
    # 42 layers of 256 for 8,192 tokens, as Gemma 4 E4B has them
    text = load_shape("llama-3.1-8b", num_hidden_layers=42, hidden_size_per_layer_input=256)
    assert held(text, 1) == 0
    assert held(replace(text, encoders=(Encoder(1),)), 8) == 8192 * 42 * 256 * 2


# Bytes that the constructors of DeepSeek-V3.2 leave: 581,563,344 with a 16-bit cache at every
# tensor-parallel size, and these with an FP8 one.
EXPANDED: list[tuple[int, int]] = [
    (1, 6_086_685_404),
    (2, 3_804_984_028),
    (4, 3_234_558_684),
    (8, 2_949_346_012),
]


def test_indices_of_selected_tokens() -> None:
    for tensor, _ in EXPANDED:
        assert held(sparse(), tensor) == pytest.approx(581_563_344, rel=0.004)


@pytest.mark.parametrize(("tensor", "want_bytes"), EXPANDED)
def test_hopper_expands_an_fp8_cache(tensor: int, want_bytes: int) -> None:
    options = replace(OPTIONS, kv_cache_dtype="fp8")
    assert held(sparse(), tensor, options) == pytest.approx(want_bytes, rel=0.002)


def test_other_kernels_need_no_expanded_copy() -> None:
    options = replace(OPTIONS, kv_cache_dtype="fp8")
    assert held(sparse(), 8, options, "b200-180gb") == held(sparse(), 8, OPTIONS, "b200-180gb")


def test_mtp_doubles_the_indices() -> None:
    with_mtp = replace(OPTIONS, speculative_tokens=1)
    assert held(sparse(), 8, with_mtp) == pytest.approx(1_177_453_536, rel=0.02)
