"""Read which layers of a checkpoint a quantisation method stores in which scheme.

Sources: vLLM 0.32.0, `get_quant_method` of vllm/model_executor/layers/quantization: auto_gptq.py
and utils/gptq_utils.py, auto_awq.py, inc/config_parser.py, modelopt.py, quark/quark.py,
compressed_tensors/compressed_tensors.py, fp8.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, Quantization
from tonnage.checkpoint.quantization.module_formats import FormatRule
from tonnage.checkpoint.quantization.module_names import ModuleNames
from tonnage.checkpoint.quantization.weight_schemes import (
    SCHEME_READERS,
    UNKNOWN_BITS,
    read_group_size,
    read_modelopt,
    read_quark_layer,
    read_unknown,
    read_weight_arguments,
)


@dataclass(frozen=True, slots=True)
class Schemes:
    """The model's `main` scheme, rules for single layers, the `default`, and the head's scheme."""

    main: Quantization
    rules: tuple[FormatRule, ...] = ()
    default: Quantization | None = None
    head: Quantization | None = None


SchemesReader = Callable[[str, ConfigFields], Schemes]
"""Reads all schemes of a method."""


def read_schemes(method: str, config: ConfigFields) -> Schemes:
    """Return the schemes of a `quantization_config`, without its ignored layers.

    Raises CheckpointError naming field, value and expectation.
    """
    return _READERS.get(method, _read_uniform)(method, config)


def _read_uniform(method: str, config: ConfigFields) -> Schemes:
    main = SCHEME_READERS.get(method, read_unknown)(method, config)
    return Schemes(main, default=main)


def _read_compressed_tensors(method: str, config: ConfigFields) -> Schemes:
    """Read compressed-tensors: groups of layers with a scheme; targets are names or classes."""
    groups = config.nested("config_groups")
    rules: list[FormatRule] = []
    default: Quantization | None = None
    for group in () if groups is None else groups.children():
        weights = group.nested("weights")
        if weights is None:
            continue
        activations = _read_activations(group)
        scheme = replace(read_weight_arguments(method, weights), activations=activations)
        targets = group.names("targets")
        names = [target for target in targets if not target[:1].isupper()]
        rules.append((ModuleNames(names), scheme))
        if len(names) < len(targets) or not targets:
            default = scheme
    if not rules:
        raise CheckpointError(
            "quantization_config.config_groups has no group with weights: expected one"
        )
    return Schemes(_find_narrowest(rules), tuple(rules), default)


def _find_narrowest(rules: Sequence[FormatRule]) -> Quantization:
    """Return the scheme with the fewest bits, which determines the kernels."""
    schemes = [scheme for _, scheme in rules if scheme is not None]
    return min(schemes, key=lambda scheme: scheme.weight_bits)


def _read_activations(group: ConfigFields) -> str | None:
    """Return the format of a group's quantised inputs."""
    inputs = group.nested("input_activations")
    bits = None if inputs is None else inputs.optional_positive("num_bits")
    if inputs is None or bits is None:
        return None
    return f"{'fp' if inputs.text('type') == 'float' else 'int'}{bits}"


def _read_gptq(method: str, config: ConfigFields) -> Schemes:
    """Read GPTQ with GPTQModel's `dynamic` rules: `-:` keeps 16 bits, others change the scheme."""
    main = SCHEME_READERS[method](method, config)
    dynamic = config.nested("dynamic")
    rules: list[FormatRule] = []
    for pattern, fields in () if dynamic is None else dynamic.named_objects():
        excluded = pattern.startswith("-:")
        names = ModuleNames([f"re:{pattern.removeprefix('-:').removeprefix('+:')}"])
        rules.append((names, None if excluded else _override(main, fields)))
    head = main if config.value("lm_head") is True else None
    return Schemes(main, _merge_adjacent(rules), main, head)


def _read_auto_round(method: str, config: ConfigFields) -> Schemes:
    """Read AutoRound: `extra_config` has overrides by name or regular expression."""
    main = SCHEME_READERS[method](method, config)
    extra = config.nested("extra_config")
    rules = [
        (ModuleNames(_parse_layer_name(name)), _override(main, fields))
        for name, fields in (() if extra is None else extra.named_objects())
    ]
    return Schemes(main, _merge_by_scheme(rules), main)


def _parse_layer_name(name: str) -> tuple[str, ...]:
    """Return a name, or an unanchored expression if it has regular-expression characters."""
    return (f"re:.*{name}",) if set(name) & set("*+?^$()[]{}|\\") else (name,)


def _override(main: Quantization, fields: ConfigFields) -> Quantization | None:
    """Return the main scheme with the bits and group size of `fields`, None for 16 bits or more."""
    bits = fields.positive("bits", default=main.weight_bits, limit=32)
    if bits >= UNKNOWN_BITS:
        return None
    has_group_size, has_zero_point = "group_size" in fields, main.scale_bits > 16
    return replace(
        main,
        weight_bits=bits,
        group_size=read_group_size(fields) if has_group_size else main.group_size,
        scale_bits=16 + bits if has_zero_point else main.scale_bits,
    )


def _read_modelopt(method: str, config: ConfigFields) -> Schemes:
    """Read ModelOpt: it also quantises the head; mixed checkpoints list all quantised layers."""
    layers = config.nested("quantized_layers")
    if (config.text("quant_algo") or "").upper() != "MIXED_PRECISION" or layers is None:
        main = read_modelopt(method, config)
        return Schemes(main, default=main, head=main)
    rules = [
        (ModuleNames([name]), read_modelopt(method, fields))
        for name, fields in layers.named_objects()
    ]
    if not rules:
        raise CheckpointError("quantization_config.quantized_layers is empty: expected layers")
    merged_rules = _merge_by_scheme(rules)
    return Schemes(_find_narrowest(merged_rules), merged_rules)


def _read_quark(method: str, config: ConfigFields) -> Schemes:
    """Read Quark: `layer_quant_config` has the schemes of single layers by shell pattern."""
    main = SCHEME_READERS[method](method, config)
    layers = config.nested("layer_quant_config")
    rules = [
        (ModuleNames([pattern]), read_quark_layer(method, fields))
        for pattern, fields in (() if layers is None else layers.named_objects())
        if fields.nested("weight") is not None
    ]
    return Schemes(main, _merge_by_scheme(rules), main)


def _merge_adjacent(rules: Sequence[FormatRule]) -> tuple[FormatRule, ...]:
    """Merge adjacent rules with equal schemes; the order stays, as the first match counts."""
    merged: list[FormatRule] = []
    for names, scheme in rules:
        if merged and merged[-1][1] == scheme:
            merged[-1][0].join(names)
        else:
            merged.append((names, scheme))
    return tuple(merged)


def _merge_by_scheme(rules: Sequence[FormatRule]) -> tuple[FormatRule, ...]:
    """Return one rule for each scheme: thousands of layers share a few schemes."""
    names_by_scheme: dict[Quantization | None, ModuleNames] = {}
    for names, scheme in rules:
        names_by_scheme.setdefault(scheme, ModuleNames()).join(names)
    return tuple((names, scheme) for scheme, names in names_by_scheme.items())


_READERS: Final[Mapping[str, SchemesReader]] = {
    "compressed-tensors": _read_compressed_tensors,
    "gptq": _read_gptq,
    "gptq_marlin": _read_gptq,
    "auto_gptq": _read_gptq,
    "awq": _read_gptq,
    "awq_marlin": _read_gptq,
    "auto_awq": _read_gptq,
    "auto-round": _read_auto_round,
    "inc": _read_auto_round,
    "modelopt": _read_modelopt,
    "modelopt_fp4": _read_modelopt,
    "modelopt_mxfp8": _read_modelopt,
    "modelopt_mixed": _read_modelopt,
    "mxfp8": _read_modelopt,
    "quark": _read_quark,
}
"""Readers of the methods with rules for single layers; others store all layers in one scheme."""
