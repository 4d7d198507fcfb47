"""Weights of one GPU, against what vLLM 0.32.0's own classes allocate."""

from dataclasses import replace

import pytest

from tests.support.engines.shapes import load_shape, with_exception
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint, DType, ModelShape, Quantization
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.matrix import WeightPart
from tonnage.fit.weights.precision import loaded_quantization, weight_format
from tonnage.fit.weights.total import count_parameters, stored_bytes, weights_by_stage

CATALOG = load_catalog()
OPTIONS = EngineOptions("v0.32.0", 32768)


def per_gpu(
    shape: ModelShape,
    tensor: int,
    accelerator: str = "h200-sxm-141gb",
    options: EngineOptions = OPTIONS,
    weights_bytes: int | None = None,
) -> int:
    return max(
        weights_by_stage(
            Checkpoint(shape, weights_bytes=weights_bytes),
            Parallelism(tensor),
            options,
            CATALOG.accelerator(accelerator),
            CATALOG.release(options.release),
        )
    )


# Bytes of rank 0 when vLLM 0.32.0 builds the model for an H200.
LOADED: list[tuple[str, int, float]] = [
    ("llama-3.1-8b", 1, 16.094e9),
    ("llama-3.1-8b", 8, 2.042e9),
    ("llama-3.3-70b", 1, 141.141e9),
    ("llama-3.3-70b", 8, 17.674e9),
    ("llama-3.3-70b-fp8-dynamic", 1, 72.717e9),
    ("llama-3.3-70b-fp8-dynamic", 8, 9.126e9),
    ("qwen2.5-72b-awq", 1, 41.604e9),
    ("qwen2.5-72b-awq", 8, 5.210e9),
    ("deepseek-v3", 1, 675.218e9),
    ("deepseek-v3", 8, 85.417e9),
    ("qwen3.5-397b-a17b", 1, 793.639e9),
    ("qwen3.5-397b-a17b", 8, 99.512e9),
]


@pytest.mark.parametrize(("name", "tensor", "want_bytes"), LOADED)
def test_weights_of_the_first_rank(name: str, tensor: int, want_bytes: float) -> None:
    assert per_gpu(load_shape(name), tensor) == pytest.approx(want_bytes, rel=0.002)


@pytest.mark.parametrize(
    ("version", "want_gib"), [("v0.10.1", 65.97), ("v0.14.1", 64.38), ("v0.32.0", 61.03)]
)
def test_gpt_oss_lies_as_the_kernels_of_the_release_want_it(version: str, want_gib: float) -> None:
    """Printed by start-ups on Hopper: Marlin's padding, then scales twice; at last neither."""
    options = replace(OPTIONS, release=version)
    got = per_gpu(load_shape("gpt-oss-120b"), 1, "h100-sxm-80gb", options)
    assert got / 1024**3 == pytest.approx(want_gib, rel=0.002)


def test_parameters_by_part() -> None:
    counted = count_parameters(load_shape("deepseek-v3"))
    assert sum(counted.values()) == pytest.approx(671e9, rel=0.002)
    assert counted[WeightPart.EXPERTS] == 58 * 256 * 3 * 2048 * 7168
    assert counted[WeightPart.LM_HEAD] == 129280 * 7168


def test_tied_embeddings_are_counted_once() -> None:
    untied = load_shape("llama-3.1-8b")
    tied = replace(untied, tie_word_embeddings=True)
    assert count_parameters(tied)[WeightPart.LM_HEAD] == 0
    assert per_gpu(untied, 1) - per_gpu(tied, 1) == 128256 * 4096 * 2


def test_the_vocabulary_is_padded() -> None:
    shape = replace(load_shape("llama-3.1-8b"), vocab_size=128_001)
    assert count_parameters(shape)[WeightPart.EMBEDDINGS] == 128_064 * 4096


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    two = load_shape("llama-3.1-8b", num_key_value_heads=2)
    one = load_shape("llama-3.1-8b", num_key_value_heads=1)
    assert per_gpu(two, 8) == per_gpu(one, 8), "two KV heads or one, each of eight ranks holds one"


def test_known_files_decide_the_total() -> None:
    shape = load_shape("llama-3.3-70b")
    exact = per_gpu(shape, 4)
    larger = per_gpu(shape, 4, weights_bytes=int(stored_bytes(shape) * 1.1))
    assert larger == pytest.approx(exact * 1.1, rel=0.002)


def test_mtp_layers_are_on_disk_only() -> None:
    shape = load_shape("deepseek-v3")
    assert stored_bytes(shape) - stored_bytes(replace(shape, draft_layers=())) > 11e9
    # The published files are 688.6 GB.
    assert stored_bytes(shape) == pytest.approx(688.6e9, rel=0.01)
    assert per_gpu(shape, 8, weights_bytes=688_586_727_753) == pytest.approx(85.4e9, rel=0.01)


def test_mtp_layers_are_loaded_for_speculative_decoding() -> None:
    """1584 MiB is what vLLM 0.32.0 builds for the draft of DeepSeek-R1 on one of eight ranks."""
    shape = load_shape("deepseek-v3")
    with_mtp = replace(OPTIONS, speculative_tokens=1)
    grown = per_gpu(shape, 8, options=with_mtp) - per_gpu(shape, 8)
    assert grown == pytest.approx(1584.1 * 1024**2, rel=0.002)
    assert per_gpu(replace(shape, draft_layers=()), 8, options=with_mtp) == per_gpu(shape, 8)


def test_a_whole_mlp_is_not_split() -> None:
    sharded = load_shape("llama-3.1-8b", model_type="gpt_neox")
    whole = load_shape("llama-3.1-8b", model_type="gpt_bigcode")
    mlp = 32 * 2 * 4096 * 14336 * 2
    rest = 8192 * 4096 * 2  # learned positions
    assert per_gpu(whole, 8) - per_gpu(sharded, 8) > mlp * 7 // 8 - rest


def test_a_float32_file_is_loaded_in_16_bits() -> None:
    half = load_shape("llama-3.1-8b")
    full = replace(half, dtype=DType.FLOAT32)
    assert stored_bytes(full) == 2 * stored_bytes(half)
    assert per_gpu(full, 1, weights_bytes=stored_bytes(full)) == per_gpu(half, 1)


def test_quantising_while_loading_halves_the_linear_layers() -> None:
    shape = load_shape("llama-3.3-70b")
    online = per_gpu(shape, 1, options=replace(OPTIONS, quantization="fp8"))
    assert online == pytest.approx(per_gpu(load_shape("llama-3.3-70b-fp8-dynamic"), 1), rel=0.001)
    known = per_gpu(
        shape, 1, options=replace(OPTIONS, quantization="fp8"), weights_bytes=stored_bytes(shape)
    )
    assert known == online, "the files' size is that of 16 bits"


def test_rocm_pads_rows_of_fp8_layers() -> None:
    shape = load_shape("llama-3.3-70b-fp8-dynamic")
    assert 1.01 < per_gpu(shape, 1, "mi300x") / per_gpu(shape, 1) < 1.04
    assert per_gpu(load_shape("deepseek-v3"), 8, "mi300x") == per_gpu(load_shape("deepseek-v3"), 8)


def test_rocm_pads_rows_of_unquantised_experts_only_when_they_are_aligned() -> None:
    shape = load_shape("mixtral-8x7b")
    grown = per_gpu(shape, 1, "mi300x") - per_gpu(shape, 1)
    rows = 32 * 8 * (2 * 14336 + 4096)
    assert grown == rows * 256
    odd = load_shape("mixtral-8x7b", hidden_size=4100, intermediate_size=14340, head_dim=128)
    assert per_gpu(odd, 1, "mi300x") == per_gpu(odd, 1)


@pytest.mark.parametrize(
    ("what", "device", "changes", "tensor", "want_width"),
    [("Hopper", "h100-sxm-80gb", {}, 8, 96), ("Blackwell", "b200-180gb", {}, 8, 128),
     ("nothing to round", "b200-180gb", {}, 1, 768),
     ("kernels do not know GELU", "b200-180gb", {"hidden_act": "gelu"}, 8, 96)],
)  # fmt: skip
def test_blackwell_rounds_experts_in_16_bits_up(
    what: str, device: str, changes: dict[str, str], tensor: int, want_width: int
) -> None:
    shape = load_shape("mixtral-8x7b", intermediate_size=768, **changes)
    experts = 32 * 8 * 3 * 4096 * 2
    other = per_gpu(shape, tensor) - experts * 768 // tensor
    assert per_gpu(shape, tensor, device) == other + experts * want_width, what


def test_layers_kept_in_16_bits_cost_as_much() -> None:
    none = replace(load_shape("llama-3.1-8b"), quantization=Quantization("fp8", 8))
    some = with_exception(none, "mlp.down_proj", 2)
    assert per_gpu(some, 1) - per_gpu(none, 1) == 2 * (4096 * 14336 - 4096 * 4)


def test_the_published_405b_keeps_its_attention_in_16_bits() -> None:
    """A start-up of the published files printed 57.75 GiB a GPU on eight."""
    assert per_gpu(load_shape("llama-3.1-405b-fp8"), 8) == pytest.approx(57.75 * 1024**3, rel=0.02)


def test_absorbed_projections_are_dense_latent_attention_only() -> None:
    shape = load_shape("deepseek-v3")
    sparse = load_shape(
        "deepseek-v3", index_n_heads=1, index_head_dim=1, indexer_rope_interleave=True
    )
    absorbed = 61 * 128 * 256 * 512 * 2
    assert per_gpu(shape, 1) - per_gpu(sparse, 1) == pytest.approx(absorbed, rel=0.01)
    plain = replace(shape, quantization=None)
    assert per_gpu(plain, 1) == pytest.approx(2 * 671e9, rel=0.002), "16 bits need no copy"


def test_mxfp8_is_expanded_where_there_are_no_kernels() -> None:
    mxfp8 = Quantization("mxfp8", 8, group_size=32, scale_bits=8)
    shape = replace(load_shape("llama-3.1-8b"), quantization=mxfp8)
    release = CATALOG.release(None)
    assert loaded_quantization(shape, OPTIONS, "gfx942", release) is None
    assert loaded_quantization(shape, OPTIONS, "gfx950", release) == mxfp8


def test_experts_stay_whole_with_expert_parallelism() -> None:
    shape = load_shape("gpt-oss-120b")
    sharded = per_gpu(shape, 8)
    whole = per_gpu(shape, 8, options=replace(OPTIONS, enable_expert_parallel=True))
    assert whole < sharded, "360 columns are padded to 384, 2880 are not"


@pytest.mark.parametrize(
    ("quantization", "want"),
    [
        (None, "16-bit"),
        (Quantization("fp8", 8), "fp8"),
        (Quantization("fp8", 8, block=(128, 128)), "fp8-block"),
        (Quantization("awq", 4, group_size=128, is_float=False), "int4"),
        (Quantization("compressed-tensors", 8, is_float=False), "int8"),
        (Quantization("modelopt", 4, group_size=16, scale_bits=8), "nvfp4"),
        (Quantization("mxfp4", 4, group_size=32, scale_bits=8), "mxfp4"),
        (Quantization("mxfp8", 8, group_size=32, scale_bits=8), "mxfp8"),
        (Quantization("novel", 16), "16-bit"),
    ],
)
def test_formats_have_one_name_whatever_wrote_them(
    quantization: Quantization | None, want: str
) -> None:
    assert weight_format(quantization) == want
