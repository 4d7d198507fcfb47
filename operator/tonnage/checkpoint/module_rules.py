"""Which layers of a quantised checkpoint are stored how, in the words of each method.

Sources: vLLM 0.32.0, `get_quant_method` of vllm/model_executor/layers/quantization: auto_gptq.py
and utils/gptq_utils.py, auto_awq.py, inc/config_parser.py, modelopt.py, quark/quark.py,
compressed_tensors/compressed_tensors.py, fp8.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, Quantization
from tonnage.checkpoint.module_formats import FormatRule
from tonnage.checkpoint.module_names import ModuleNames
from tonnage.checkpoint.weight_schemes import (
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
    """The model's `main` scheme, rules for layers with others, what the rest has, and the head."""

    main: Quantization
    rules: tuple[FormatRule, ...] = ()
    otherwise: Quantization | None = None
    head: Quantization | None = None


SchemesReader = Callable[[str, ConfigFields], Schemes]
"""Reads all schemes of a method."""


def read_schemes(method: str, given: ConfigFields) -> Schemes:
    """All that a `quantization_config` says of a method's layers, ignored ones apart.

    Raises CheckpointError naming field, value and expectation.
    """
    return _READERS.get(method, _read_uniform)(method, given)


def _read_uniform(method: str, given: ConfigFields) -> Schemes:
    main = SCHEME_READERS.get(method, read_unknown)(method, given)
    return Schemes(main, otherwise=main)


def _read_compressed_tensors(method: str, given: ConfigFields) -> Schemes:
    """Groups of layers with a scheme each; a target is a layer's name or a kind of layer."""
    groups = given.nested("config_groups")
    rules: list[FormatRule] = []
    otherwise: Quantization | None = None
    for group in () if groups is None else groups.children():
        weights = group.nested("weights")
        if weights is None:
            continue
        activations = _read_activations(group)
        scheme = replace(read_weight_arguments(method, weights), activations=activations)
        targets = group.names("targets")
        named = [target for target in targets if not target[:1].isupper()]
        rules.append((ModuleNames(named), scheme))
        if len(named) < len(targets) or not targets:
            otherwise = scheme
    if not rules:
        raise CheckpointError(
            "quantization_config.config_groups has no group with weights: expected one"
        )
    return Schemes(_narrowest(rules), tuple(rules), otherwise)


def _narrowest(rules: Sequence[FormatRule]) -> Quantization:
    """The scheme of fewest bits: it decides which kernels are needed."""
    schemes = [scheme for _, scheme in rules if scheme is not None]
    return min(schemes, key=lambda scheme: scheme.weight_bits)


def _read_activations(group: ConfigFields) -> str | None:
    """The format that the inputs of a group of layers are quantised to."""
    inputs = group.nested("input_activations")
    bits = None if inputs is None else inputs.optional_positive("num_bits")
    if inputs is None or bits is None:
        return None
    return f"{'fp' if inputs.text('type') == 'float' else 'int'}{bits}"


def _read_gptq(method: str, given: ConfigFields) -> Schemes:
    """GPTQ: `dynamic` rules of GPTQModel, `-:` for 16 bits, else other bits or group sizes."""
    main = SCHEME_READERS[method](method, given)
    dynamic = given.nested("dynamic")
    rules: list[FormatRule] = []
    for pattern, fields in () if dynamic is None else dynamic.named_objects():
        excluded = pattern.startswith("-:")
        names = ModuleNames([f"re:{pattern.removeprefix('-:').removeprefix('+:')}"])
        rules.append((names, None if excluded else _overridden(main, fields)))
    head = main if given.value("lm_head") is True else None
    return Schemes(main, _in_order(rules), main, head)


def _read_auto_round(method: str, given: ConfigFields) -> Schemes:
    """AutoRound: `extra_config` has what differs, by name or regular expression."""
    main = SCHEME_READERS[method](method, given)
    extra = given.nested("extra_config")
    rules = [
        (ModuleNames(_name_or_expression(name)), _overridden(main, fields))
        for name, fields in (() if extra is None else extra.named_objects())
    ]
    return Schemes(main, _joined(rules), main)


def _name_or_expression(name: str) -> tuple[str, ...]:
    """Names with signs of a regular expression count as one, searched for anywhere."""
    return (f"re:.*{name}",) if set(name) & set("*+?^$()[]{}|\\") else (name,)


def _overridden(main: Quantization, fields: ConfigFields) -> Quantization | None:
    """The main scheme with the bits and group size given here, None for 16 bits and more."""
    bits = fields.positive("bits", default=main.weight_bits, limit=32)
    if bits >= UNKNOWN_BITS:
        return None
    own_group = "group_size" in fields
    zero_bits = main.scale_bits - 16 if main.scale_bits > 16 else 0
    return replace(
        main,
        weight_bits=bits,
        group_size=read_group_size(fields) if own_group else main.group_size,
        scale_bits=16 + bits if zero_bits else main.scale_bits,
    )


def _read_modelopt(method: str, given: ConfigFields) -> Schemes:
    """ModelOpt quantises the output head too; mixed checkpoints list every quantised layer."""
    listed = given.nested("quantized_layers")
    if (given.text("quant_algo") or "").upper() != "MIXED_PRECISION" or listed is None:
        main = read_modelopt(method, given)
        return Schemes(main, otherwise=main, head=main)
    rules = [
        (ModuleNames([name]), read_modelopt(method, fields))
        for name, fields in listed.named_objects()
    ]
    if not rules:
        raise CheckpointError("quantization_config.quantized_layers is empty: expected layers")
    joined = _joined(rules)
    return Schemes(_narrowest(joined), joined)


def _read_quark(method: str, given: ConfigFields) -> Schemes:
    """Quark: layers with a scheme of their own by shell pattern."""
    main = SCHEME_READERS[method](method, given)
    own = given.nested("layer_quant_config")
    rules = [
        (ModuleNames([pattern]), read_quark_layer(method, fields))
        for pattern, fields in (() if own is None else own.named_objects())
        if fields.nested("weight") is not None
    ]
    return Schemes(main, _joined(rules), main)


def _in_order(rules: Sequence[FormatRule]) -> tuple[FormatRule, ...]:
    """One rule for neighbours that say the same: the first one that names a layer counts."""
    joined: list[FormatRule] = []
    for names, stored in rules:
        if joined and joined[-1][1] == stored:
            joined[-1][0].join(names)
        else:
            joined.append((names, stored))
    return tuple(joined)


def _joined(rules: Sequence[FormatRule]) -> tuple[FormatRule, ...]:
    """One rule for each scheme: thousands of layers share a few."""
    joined: dict[Quantization | None, ModuleNames] = {}
    for names, stored in rules:
        joined.setdefault(stored, ModuleNames()).join(names)
    return tuple((names, stored) for stored, names in joined.items())


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
"""Readers of the methods that tell layers apart; of any other, all layers are alike."""
