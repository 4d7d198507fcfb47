"""Formats of a checkpoint's layers from the names of its tensors."""

import json

from tests.support.foreign.checkpoint_files import FP8, LLAMA, llama_tensors
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.safetensors.headers import SafetensorsIndex, parse_index
from tonnage.checkpoint.shape import parse_config
from tonnage.checkpoint.tensor_table import tabulate

SHAPE = parse_config({**LLAMA, "quantization_config": FP8})
UNQUANTIZED = frozenset({"0.mlp.down_proj", "self_attn.o_proj"})


def index_of(unquantized: frozenset[str]) -> SafetensorsIndex:
    weight_map = {name: "model.safetensors" for name, _, _ in llama_tensors(plain=unquantized)}
    return parse_index(json.dumps({"metadata": {"total_size": 5}, "weight_map": weight_map}))


def exceptions(layer: int, **facts: object) -> dict[str, object]:
    shape = make_checkpoint(SHAPE, **facts).shape  # type: ignore[arg-type] # one of two kinds
    return dict(shape.layer_kinds[shape.layer_order[layer]].exceptions)


def test_an_index_shows_which_layers_have_16_bits() -> None:
    assert exceptions(0, index=index_of(UNQUANTIZED)) == {
        "self_attn.o_proj": None,
        "mlp.down_proj": None,
    }
    assert exceptions(1, index=index_of(UNQUANTIZED)) == {"self_attn.o_proj": None}


def test_a_table_of_tensors_gives_the_same_formats() -> None:
    table = tabulate(llama_tensors(plain=UNQUANTIZED))
    assert exceptions(0, tensors=table) == exceptions(0, index=index_of(UNQUANTIZED))
    assert exceptions(3, tensors=table) == exceptions(3, index=index_of(UNQUANTIZED))


def test_tensors_take_precedence_over_ignored_layers_of_the_config() -> None:
    config = {**LLAMA, "quantization_config": {**FP8, "modules_to_not_convert": ["q_proj"]}}
    got = make_checkpoint(parse_config(config), index=index_of(frozenset()))
    assert {layer.exceptions for layer in got.shape.layer_kinds} == {()}


def test_names_without_scales_change_nothing() -> None:
    """For 16-bit files and for unknown names."""
    assert make_checkpoint(SHAPE, tensors=tabulate(llama_tensors())).shape == SHAPE
    unknown = SafetensorsIndex(9, (), ("transformer.h.0.c_fc.w",))
    assert make_checkpoint(SHAPE, index=unknown).shape == SHAPE


def test_the_most_exact_size_counts() -> None:
    index, table = index_of(UNQUANTIZED), tabulate(llama_tensors(plain=UNQUANTIZED))
    assert make_checkpoint(SHAPE).weights_bytes is None
    assert make_checkpoint(SHAPE, index=index).weights_bytes == 5
    assert make_checkpoint(SHAPE, index=index, weights_bytes=6).weights_bytes == 6
    assert make_checkpoint(SHAPE, tensors=table).weights_bytes == table.total_bytes
    assert make_checkpoint(SHAPE, tensors=table).bytes_by_dtype == table.by_dtype


def test_one_expert_determines_the_format_of_all() -> None:
    config = {
        **LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
        "num_local_experts": 2, "num_experts_per_tok": 1, "quantization_config": FP8,
    }  # fmt: skip
    shape = parse_config(config)
    names = []
    for layer in range(4):
        path = f"model.layers.{layer}.block_sparse_moe.experts.1.w2"
        names += [f"{path}.weight"] + ([f"{path}.weight_scale_inv"] if layer else [])
    got = make_checkpoint(shape, index=SafetensorsIndex(None, (), tuple(names))).shape
    first, second = (got.layer_kinds[got.layer_order[layer]].exceptions for layer in (0, 1))
    assert ("mlp.experts.0.down_proj", None) in first
    assert second == ()


def test_only_the_sizes_of_an_oversized_table_are_used() -> None:
    rows = [(f"tensor{'x' * number}", "U8", (1,)) for number in range(4097)]
    got = make_checkpoint(SHAPE, tensors=tabulate(rows))
    assert (got.tensors, got.weights_bytes, got.shape) == (None, 4097, SHAPE)
