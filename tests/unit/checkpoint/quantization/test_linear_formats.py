"""`quantization_config` of each quantisation method."""

import time
from collections import Counter
from typing import Any

import pytest

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, Quantization
from tonnage.checkpoint.quantization.linear_formats import read_module_formats
from tonnage.checkpoint.quantization.module_formats import ExpertPlace, ModuleFormats
from tonnage.checkpoint.quantization.module_names import ModuleNames


def read(config: dict[str, Any]) -> Quantization:
    quantization = read_module_formats(ConfigFields({"quantization_config": config})).main
    assert quantization is not None
    return quantization


def group(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
    }


CONFIGS: list[tuple[str, dict[str, Any], Quantization]] = [
    ("FP8 in blocks", {"quant_method": "fp8", "weight_block_size": [128, 128]},
     Quantization("fp8", 8, block=(128, 128))),
    ("FP8 by tensor", {"quant_method": "fp8"}, Quantization("fp8", 8, per_tensor=True)),
    ("Llama 405B", {"quant_method": "fbgemm_fp8"}, Quantization("fbgemm_fp8", 8)),
    ("compressed FP8", group(num_bits=8, type="float", strategy="channel"),
     Quantization("compressed-tensors", 8)),
    ("compressed FP8 by tensor", group(num_bits=8, type="float", strategy="tensor"),
     Quantization("compressed-tensors", 8, per_tensor=True)),
    ("compressed FP8 in blocks",
     group(num_bits=8, type="float", strategy="block", block_structure=[128, 128]),
     Quantization("compressed-tensors", 8, block=(128, 128))),
    ("compressed MXFP8", group(num_bits=8, type="float", strategy="group", group_size=32),
     Quantization("compressed-tensors", 8, group_size=32, scale_bits=8)),
    ("compressed MXFP4", group(num_bits=4, type="float", group_size=32),
     Quantization("compressed-tensors", 4, group_size=32, scale_bits=8)),
    ("compressed INT8", group(num_bits=8, type="int", strategy="channel", symmetric=True),
     Quantization("compressed-tensors", 8, is_float=False)),
    ("compressed INT4", group(num_bits=4, type="int", group_size=128, symmetric=True),
     Quantization("compressed-tensors", 4, group_size=128, scale_bits=16, is_float=False)),
    ("compressed INT4 with zero points",
     group(num_bits=4, type="int", group_size=128, symmetric=False),
     Quantization("compressed-tensors", 4, group_size=128, scale_bits=20, is_float=False)),
    ("compressed NVFP4", group(num_bits=4, type="float", group_size=16),
     Quantization("compressed-tensors", 4, group_size=16, scale_bits=8)),
    ("AWQ", {"quant_method": "awq", "bits": 4, "group_size": 128},
     Quantization("awq", 4, group_size=128, scale_bits=20, is_float=False)),
    ("GPTQ by channel", {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True},
     Quantization("gptq", 8, scale_bits=24, is_float=False)),
    ("GPTQ with activation order",
     {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True},
     Quantization("gptq", 4, group_size=128, scale_bits=20, is_float=False, desc_act=True)),
    ("symmetric GPTQ", {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
     Quantization("gptq", 4, group_size=128, scale_bits=20, is_float=False, symmetric=True)),
    ("gpt-oss", {"quant_method": "mxfp4"},
     Quantization("mxfp4", 4, group_size=32, scale_bits=8, experts_only=True)),
    ("MXFP8", {"quant_method": "mxfp8"}, Quantization("mxfp8", 8, group_size=32, scale_bits=8)),
    ("ModelOpt FP8", {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP8"},
     Quantization("modelopt", 8, kv_cache_bits=8, per_tensor=True)),
    ("ModelOpt FP8 by channel",
     {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
     Quantization("modelopt", 8)),
    ("ModelOpt FP8 in blocks", {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"},
     Quantization("modelopt", 8, block=(128, 128))),
    ("ModelOpt NVFP4",
     {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8}},
     Quantization("modelopt", 4, group_size=16, scale_bits=8, kv_cache_bits=8)),
    ("hf_quant_config.json",
     {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}},
     Quantization("modelopt", 4, group_size=16, scale_bits=8, kv_cache_bits=8)),
    ("Quark FP8",
     {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}},
     Quantization("quark", 8)),
    ("Quark MXFP4",
     {"quant_method": "quark",
      "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}},
     Quantization("quark", 4, group_size=32, scale_bits=8)),
    ("Quark INT8 with zero points",
     {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int8"}}},
     Quantization("quark", 8, scale_bits=40, is_float=False)),
    ("AutoRound", {"quant_method": "auto-round", "bits": 4, "group_size": 128, "data_type": "int"},
     Quantization("auto-round", 4, group_size=128, scale_bits=20, is_float=False)),
    ("AutoRound MXFP4",
     {"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"},
     Quantization("auto-round", 4, group_size=32, scale_bits=8)),
    ("AutoRound FP8 in blocks",
     {"quant_method": "auto-round", "bits": 8, "group_size": [64, 128], "data_type": "fp"},
     Quantization("auto-round", 8, block=(64, 128))),
    ("torchao", {"quant_method": "torchao",
                 "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}},
     Quantization("torchao", 8, is_float=False)),
    ("FP-Quant", {"quant_method": "fp_quant", "forward_dtype": "nvfp4"},
     Quantization("fp_quant", 4, group_size=16, scale_bits=8)),
    ("INT8 experts", {"quant_method": "experts_int8"},
     Quantization("experts_int8", 8, is_float=False, experts_only=True)),
    ("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_4bit": True},
     Quantization("bitsandbytes", 4, group_size=64)),
    ("an unknown method", {"quant_method": "novel"},
     Quantization("novel", 16, scale_bits=32)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "config", "want"), CONFIGS)
def test_schemes_of_methods(what: str, config: dict[str, Any], want: Quantization) -> None:
    assert read(config) == want, what


def test_a_16_bit_checkpoint_has_no_scheme() -> None:
    assert read_module_formats(ConfigFields({})).main is None


IGNORED: list[tuple[str, str, dict[str, int]]] = [
    ("a layer by name", "model.layers.1.mlp.down_proj", {"mlp.down_proj": 1}),
    ("a part of every layer", "self_attn.o_proj", {"self_attn.o_proj": 3}),
    ("a pattern", "model.layers.*.mlp.up_proj", {"mlp.up_proj": 2}),
    ("an open end", "model.language_model.layers.2.mlp.shared_expert*",
     {"mlp.shared_experts.down_proj": 1}),
    ("a regular expression", "re:.*self_attn\\.k_proj$", {"self_attn.k_proj": 3}),
    ("a regular expression without end", "re:.*mlp\\.down", {"mlp.down_proj": 2}),
    ("alternatives", "re:.*mlp.(gate|up)_proj$", {"mlp.gate_proj": 2, "mlp.up_proj": 2}),
    ("layers by alternatives", "re:model.layers.(0|2).self_attn.[qk]_proj",
     {"self_attn.q_proj": 2, "self_attn.k_proj": 2}),
    ("layers by repetition", "re:.*layers\\.[0-9]+\\.mlp\\.down_proj", {"mlp.down_proj": 2}),
    ("a gate of the attention (Laguna)", "re:.*\\.self_attn\\.g_proj$", {"self_attn.g_proj": 3}),
    ("a fused layer", "model.layers.0.self_attn.qkv_proj",
     {"self_attn.q_proj": 1, "self_attn.k_proj": 1, "self_attn.v_proj": 1}),
    ("the names of Nemotron", "backbone.layers.1.mixer.o_proj", {"self_attn.o_proj": 1}),
    ("another prefix", "language_model.model.layers.0.mlp.down_proj", {"mlp.down_proj": 1}),
    ("a name that is only a prefix", "mlp.gate", {}),
    ("a regular expression that matches only a prefix", "re:.*mlp.gate$", {}),
    ("a regular expression that cannot be translated", "re:(a|b)+(c)*self_attn", {}),
    ("one with a lookahead", "re:(?!.*mlp).*", {}),
    ("the head", "lm_head", {}),
]  # fmt: skip


def counted(
    formats: ModuleFormats, layers: int = 3, expert_layers: frozenset[int] = frozenset({2})
) -> dict[str, int]:
    """Count the layers in which each linear layer is an exception."""
    return dict(
        Counter(
            linear
            for layer in range(layers)
            for linear, _ in formats.of_layer(layer, place(layer in expert_layers))
            if not linear.startswith(("mlp.g", "mlp.u", "mlp.d")) or layer not in expert_layers
        )
    )


def ignoring(*entries: str) -> ModuleFormats:
    main = Quantization("fp8", 8)
    return ModuleFormats(main, [(ModuleNames(entries), None)], main)


@pytest.mark.parametrize(("what", "entry", "want"), IGNORED)
def test_layers_kept_in_16_bits(what: str, entry: str, want: dict[str, int]) -> None:
    """Three layers, the last one with experts instead of an MLP."""
    assert counted(ignoring(entry)) == want, what


def test_a_dense_layer_has_no_experts_to_ignore() -> None:
    counts = counted(ignoring("model.layers.0*"))
    assert "mlp.experts.0.down_proj" not in counts
    assert counts["mlp.down_proj"] == 1


def test_hostile_patterns_take_no_time() -> None:
    patterns = [f"{'*a' * 120}{number}*" for number in range(64)]
    patterns += ["re:" + "(a|b)" * 150, "re:" + "(" * 500, "re:" + ".*" * 400 + "c"]
    started = time.process_time()
    counted(ignoring(*patterns), layers=128)
    assert time.process_time() - started < 60  # with backtracking, it does not end


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(CheckpointError, match="512 patterns"):
        ModuleNames(f"*{number}*" for number in range(513))


FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}


def place(has_experts: bool) -> ExpertPlace:
    return ExpertPlace.IN_MLP if has_experts else ExpertPlace.NOWHERE


def formats_of(config: dict[str, Any], **model: Any) -> ModuleFormats:
    return read_module_formats(ConfigFields({"quantization_config": config, **model}))


def bits_of(formats: ModuleFormats, layer: int = 0, has_experts: bool = False) -> dict[str, int]:
    """Return the bits of linear layers that differ from the main scheme, 16 if unquantised."""
    return {
        linear: 16 if scheme is None else scheme.weight_bits
        for linear, scheme in formats.of_layer(layer, place(has_experts))
    }


def test_groups_of_layers_have_separate_schemes() -> None:
    formats = formats_of({
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"weights": FP8, "targets": ["re:.*(down|o)_proj$"]},
            "group_1": {"weights": NVFP4, "targets": ["Linear"]},
        },
        "ignore": ["re:.*self_attn.[qkv]_proj$", "lm_head"],
    })  # fmt: skip
    assert formats.main is not None
    assert formats.main.weight_bits == 4, "the narrowest scheme determines the kernels"
    attention = {f"self_attn.{name}_proj": 16 for name in "qkv"}
    assert bits_of(formats) == {**attention, "self_attn.o_proj": 8, "mlp.down_proj": 8}


def test_layers_that_no_group_targets_keep_16_bits() -> None:
    formats = formats_of({
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": FP8, "targets": ["re:.*mlp.*"]}},
    })  # fmt: skip
    assert bits_of(formats)["self_attn.q_proj"] == 16
    assert "mlp.up_proj" not in bits_of(formats)


def test_gptq_rules_exclude_layers_and_change_bits() -> None:
    formats = formats_of({
        "quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True,
        "dynamic": {"-:.*self_attn.*": {}, "+:.*\\.down_proj.*": {"bits": 8, "group_size": 64}},
    })  # fmt: skip
    got = dict(formats.of_layer(0, ExpertPlace.NOWHERE))
    assert got["self_attn.q_proj"] is None
    assert got["mlp.down_proj"] == Quantization(
        "gptq", 8, group_size=64, scale_bits=24, is_float=False
    )
    assert "mlp.up_proj" not in got
    assert formats.head == formats.main, "the config quantises lm_head"


def test_auto_round_lists_overrides_by_name_or_expression() -> None:
    formats = formats_of({
        "quant_method": "auto-round", "bits": 4, "group_size": 128,
        "extra_config": {
            "model.language_model.layers.0.linear_attn.in_proj_a": {"bits": 16, "data_type": "fp"},
            ".*mlp\\.(up|gate)_proj": {"bits": 8},
        },
    })  # fmt: skip
    got = bits_of(formats)
    assert got == {"linear_attn.in_proj_ba": 16, "mlp.gate_proj": 8, "mlp.up_proj": 8}
    assert "linear_attn.in_proj_ba" not in bits_of(formats, layer=1)


def test_mixed_modelopt_checkpoints_list_every_quantised_layer() -> None:
    formats = formats_of({
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
            "model.layers.0.mlp.experts.0.down_proj": {"quant_algo": "NVFP4", "group_size": 16},
        },
    })  # fmt: skip
    got = bits_of(formats, has_experts=True)
    assert got["self_attn.o_proj"] == 8
    assert got["self_attn.q_proj"] == 16, "layers that are not listed are not quantised"
    assert "mlp.experts.0.down_proj" not in got
    assert bits_of(formats, layer=1, has_experts=True)["mlp.experts.0.down_proj"] == 16


def test_modelopt_quantises_the_head_unless_it_is_ignored() -> None:
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert formats_of(config).head == formats_of(config).main
    assert formats_of({**config, "ignore": ["lm_head"]}).head is None


def test_quark_has_schemes_by_pattern() -> None:
    formats = formats_of({
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
        "layer_quant_config": {"*mlp.down_proj": {"weight": {"dtype": "fp4", "group_size": 32}}},
        "exclude": ["lm_head", "re:.*self_attn.*"],
    })  # fmt: skip
    assert bits_of(formats)["mlp.down_proj"] == 4
    assert bits_of(formats)["self_attn.kv_b_proj"] == 16


def test_experts_of_deepseek_v4_are_fp4() -> None:
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    experts = dict(formats_of(config, expert_dtype="fp4").of_layer(0, ExpertPlace.IN_MLP))
    assert experts == {
        "mlp.experts.0.down_proj": Quantization("fp8", 4, group_size=32, scale_bits=8)
    }


def test_ignored_mtp_layers_keep_16_bits() -> None:
    config = {"quant_method": "fp8", "modules_to_not_convert": ["mtp.fc", "mtp*"]}
    assert formats_of(config).mtp_unquantized
    assert not formats_of({"quant_method": "fp8"}).mtp_unquantized


def test_a_declared_cache_makes_no_layer_an_exception() -> None:
    formats = formats_of(
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP8"}
    )
    assert formats.main is not None
    assert formats.main.kv_cache_bits == 8
    assert formats.of_layer(0, ExpertPlace.IN_MLP) == ()


@pytest.mark.parametrize(
    ("config", "want_message"),
    [
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "no group with weights"),
        ({"bits": 4}, "quant_method is missing"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "gptq", "bits": 99}, "bits is 99"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {}},
            "quantized_layers is empty",
        ),
    ],
)
def test_errors_of_an_invalid_scheme_name_the_field(
    config: dict[str, Any], want_message: str
) -> None:
    with pytest.raises(CheckpointError, match=want_message):
        read_module_formats(ConfigFields({"quantization_config": config}))


@pytest.mark.parametrize(
    ("config", "want"),
    [
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    str(size): {"weights": {"num_bits": 4, "group_size": size}, "targets": ["a.b"]}
                    for size in range(1, 200)
                },
            },
            "has 199 kinds of layers, at most 128",
        ),
        (
            {"quant_method": "fp8", "ignore": [f"*.{number}.*" for number in range(200)]},
            "has 200 patterns with numbers of layers, at most 128",
        ),
    ],
    ids=["rules", "numbers"],
)
def test_too_many_rules_are_refused(config: dict[str, Any], want: str) -> None:
    with pytest.raises(CheckpointError, match=want):
        read_module_formats(ConfigFields({"quantization_config": config}))


def test_adjacent_rules_with_equal_schemes_count_as_one() -> None:
    dynamic = {f"-:.*layers.{layer}.mlp.*": {} for layer in range(300)}
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic}
    formats = read_module_formats(ConfigFields({"quantization_config": config}))
    exceptions = dict(formats.of_layer(299, ExpertPlace.NOWHERE))
    assert exceptions["mlp.down_proj"] is None
    assert "self_attn.q_proj" not in exceptions
    assert formats.of_layer(300, ExpertPlace.NOWHERE) == ()
