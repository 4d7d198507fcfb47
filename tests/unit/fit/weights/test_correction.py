"""Weights of checkpoints whose files say more than their config."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.foreign.checkpoint_files import FP8, LLAMA, Tensor, llama_tensors
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.shape import parse_config
from tonnage.checkpoint.tensor_table import tabulate
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.correction import NO_CORRECTION, contradiction, derive_weight_correction
from tonnage.fit.weights.total import stored_bytes, weights_by_stage

CATALOG = load_catalog()
HEAD_BYTES = 32000 * 1024 * 2
KEPT = frozenset({"0.mlp.down_proj", "self_attn.o_proj"})


def shape_of(**fields: Any) -> ModelShape:
    return parse_config({**LLAMA, **fields})


def per_gpu(checkpoint: Checkpoint, tensor: int = 1) -> int:
    accelerator, release = CATALOG.accelerator("h200-sxm-141gb"), CATALOG.release("0.32.0")
    options = EngineOptions("v0.32.0", 4096)
    return max(weights_by_stage(checkpoint, Parallelism(tensor), options, accelerator, release))


def with_tensors(shape: ModelShape, *more: Tensor, **kwargs: Any) -> Checkpoint:
    return make_checkpoint(shape, tabulate([*llama_tensors(**kwargs), *more]))


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_tensors_that_agree_with_the_config_change_nothing(tensor: int) -> None:
    plain, quantized = shape_of(), shape_of(quantization_config=FP8)
    assert per_gpu(with_tensors(plain), tensor) == per_gpu(Checkpoint(plain), tensor)
    assert per_gpu(with_tensors(quantized, plain=frozenset()), tensor) == per_gpu(
        Checkpoint(quantized), tensor
    )


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_layers_kept_in_16_bits_are_found_in_the_tensors(tensor: int) -> None:
    unquantized = [
        *(f"model.layers.{n}.self_attn.o_proj" for n in range(4)),
        "model.layers.0.mlp.down_proj",
    ]
    declared = shape_of(quantization_config={**FP8, "modules_to_not_convert": unquantized})
    undeclared = shape_of(quantization_config=FP8)
    assert per_gpu(Checkpoint(declared), tensor) > per_gpu(Checkpoint(undeclared), tensor)
    assert per_gpu(with_tensors(undeclared, plain=KEPT), tensor) == per_gpu(
        Checkpoint(declared), tensor
    )


def test_an_undeclared_quantisation_is_found_in_the_tensors() -> None:
    """The files determine the formats, the config only the sharding."""
    undeclared = with_tensors(shape_of(), plain=frozenset())
    assert per_gpu(undeclared, 2) == pytest.approx(
        per_gpu(Checkpoint(shape_of(quantization_config=FP8)), 2), rel=1e-3
    )


def test_wide_files_are_loaded_in_16_bits() -> None:
    shape = shape_of()
    assert per_gpu(with_tensors(shape, dtype="F32")) == per_gpu(Checkpoint(shape))


def test_an_encoder_missing_in_the_config_lies_on_every_gpu() -> None:
    shape = shape_of()
    encoder = ("vision_tower.layers.0.mlp.fc1.weight", "BF16", (1000, 1000))
    for tensor in (1, 4):
        grown = per_gpu(with_tensors(shape, encoder), tensor) - per_gpu(Checkpoint(shape), tensor)
        assert grown == 2_000_000


def test_a_tensor_of_unknown_name_lies_on_every_gpu() -> None:
    shape = shape_of()
    unknown = ("model.memory_tokens", "BF16", (500, 100))
    assert per_gpu(with_tensors(shape, unknown), 4) == per_gpu(Checkpoint(shape), 4) + 100_000


@pytest.mark.parametrize(
    "name",
    [
        "mtp.layers.0.mlp.up_proj.weight",
        "model.layers.4.mlp.up_proj.weight",
        "model.layers.4.shared_head.head.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
    ],
)
def test_tensors_that_vllm_does_not_load_are_not_counted(name: str) -> None:
    shape = shape_of()
    assert per_gpu(with_tensors(shape, (name, "BF16", (4096, 1024)))) == per_gpu(Checkpoint(shape))


def test_a_head_of_tied_embeddings_is_not_loaded() -> None:
    tied = shape_of(tie_word_embeddings=True)
    assert per_gpu(with_tensors(tied)) == per_gpu(Checkpoint(tied))


def test_unknown_tensor_names_leave_the_total() -> None:
    shape = shape_of(quantization_config=FP8)
    unknown = tabulate([("weights.blob", "U8", (stored_bytes(shape),))])
    assert derive_weight_correction(make_checkpoint(shape, unknown)) == NO_CORRECTION


def sized(shape: ModelShape, weights_bytes: float) -> Checkpoint:
    return Checkpoint(shape, weights_bytes=int(weights_bytes))


def test_a_total_that_is_rounded_changes_nothing() -> None:
    shape = shape_of()
    for share in (0.996, 1.004):
        assert derive_weight_correction(sized(shape, share * stored_bytes(shape))) == NO_CORRECTION


def test_a_larger_total_of_a_quantised_model_means_layers_in_16_bits() -> None:
    """Embeddings and norms stay unchanged, FP8 layers grow."""
    shape = shape_of(quantization_config=FP8)
    whole = stored_bytes(shape)
    for tensor in (1, 4):
        grown = per_gpu(sized(shape, 1.1 * whole), tensor) - per_gpu(Checkpoint(shape), tensor)
        assert grown == pytest.approx(0.1 * whole / tensor, rel=0.001)


def test_a_larger_total_of_a_16_bit_model_is_shared_out() -> None:
    shape = shape_of()
    extra = per_gpu(sized(shape, 1.1 * stored_bytes(shape)), 4) - per_gpu(Checkpoint(shape), 4)
    assert extra == pytest.approx(0.1 * stored_bytes(shape) / 4, rel=0.001)


def test_a_smaller_total_does_not_shrink_what_the_config_determines() -> None:
    shape = shape_of()
    assert derive_weight_correction(sized(shape, 0.9 * stored_bytes(shape))) == NO_CORRECTION


def test_a_total_of_half_the_size_means_an_undeclared_quantisation() -> None:
    shape = shape_of()
    whole, half = per_gpu(Checkpoint(shape)), stored_bytes(shape) * 6 // 10
    got = per_gpu(sized(shape, half))
    assert got == pytest.approx(whole - (stored_bytes(shape) - half), rel=0.001)


@pytest.mark.parametrize("share", [0.01, 1.9, 2.0, 50])
def test_an_impossible_total_is_ignored(share: float) -> None:
    """Less than a bit a weight; files in 32 bits, or every weight twice."""
    for shape in (shape_of(), shape_of(quantization_config=FP8)):
        assert derive_weight_correction(sized(shape, share * stored_bytes(shape))) == NO_CORRECTION


def test_an_ignored_size_is_reported() -> None:
    shape = shape_of()
    assert contradiction(Checkpoint(shape)) is None
    assert contradiction(sized(shape, 1.1 * stored_bytes(shape))) is None
    assert contradiction(with_tensors(shape)) is None
    message = contradiction(sized(shape, 3 * stored_bytes(shape)))
    assert message == ("the size of 0.72 GiB is ignored: by its config.json the model has 0.24 GiB")


def test_a_repeated_tied_head_is_accepted() -> None:
    tied = shape_of(tie_word_embeddings=True)
    assert derive_weight_correction(sized(tied, stored_bytes(tied) + HEAD_BYTES)) == NO_CORRECTION


def test_a_float32_total_is_halved() -> None:
    full = replace(shape_of(torch_dtype="float32"))
    extra = per_gpu(sized(full, 1.1 * stored_bytes(full))) - per_gpu(Checkpoint(full))
    assert extra == pytest.approx(0.1 * stored_bytes(full) / 2, rel=0.001)
