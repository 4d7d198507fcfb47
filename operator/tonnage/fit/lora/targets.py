"""Which layers `--lora-target-modules` names, and which fewer ones to propose."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from tonnage.checkpoint.model import ModelShape
from tonnage.fit.lora.buffers import adapted_layers
from tonnage.fit.weights.tensors import WHOLE

_ENDS: Final = frozenset({"embed_tokens", "lm_head"})
_EXPERTS: Final = frozenset({"experts", "gate", "router", "wg", "classifier", "shared_expert_gate"})
_ATTENTION: Final = (
    "fused_qkv_a_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "q_b_proj", "q_proj",
    "qkv_proj", "query_key_value", "wqkv", "dense", "out_proj", "wo",
)  # fmt: skip
"""Names of the layers around attention, which most adapters have."""

_PARTS_OF_EXPERTS: Final = frozenset({"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})
"""Names of layers within each expert, in checkpoints. Source: the modules that transformers builds
for Mixtral, Qwen3-MoE and DeepSeek."""


def buffer_layers(shape: ModelShape, names: Iterable[str]) -> tuple[str, ...] | None:
    """The layers with buffers for adapters that change the layers `names`, as checkpoints name
    them. None where one of them has no buffers, or where vLLM may call it differently."""
    layers = adapted_layers(shape, WHOLE)
    targets: set[str] = set()
    for name in names:
        named = {layer.name for layer in layers if layer.is_target((name,))}
        if name in _PARTS_OF_EXPERTS:
            named |= {layer.name for layer in layers if layer.name == "experts"}
        if not named:
            return None
        targets |= named
    return tuple(sorted(targets))


def usual_targets(shape: ModelShape) -> tuple[str, ...]:
    """The layers of attention and MLPs: most adapters have weights for these, or for fewer."""
    names = {layer.name for layer in adapted_layers(shape, WHOLE)}
    return tuple(sorted(names - _ENDS - _EXPERTS))


def narrower_targets(shape: ModelShape, targets: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Fewer layers than now to reserve buffers for, the most of them first: without the ends of the
    model, without experts, and those of attention alone.

    Layers of which an adapter has weights stay without effect when they are left out.
    """
    present = {layer.name for layer in adapted_layers(shape, WHOLE, tuple(sorted(targets)))}
    proposed = present
    for left_out in (_ENDS, _EXPERTS, present.difference(_ATTENTION)):
        fewer = proposed - left_out
        if fewer and fewer != proposed:
            yield tuple(sorted(fewer))
        proposed = fewer or proposed
