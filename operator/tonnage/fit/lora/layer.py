"""A layer that vLLM wraps for LoRA adapters, and the bytes of its buffers on one GPU."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, auto

from tonnage.catalog.vllm.lora import AdaptedClass
from tonnage.fit.model import EngineOptions
from tonnage.fit.weights.precision import COMPUTE_BYTES


class Shards(Enum):
    """What `--fully-sharded-loras` divides over the ranks of a layer.

    Without the flag A of a column-parallel layer and B of a row-parallel one are whole on each GPU.
    """

    RANK_OF_A = auto()
    """Column-parallel: outputs are divided anyway, the rank of A is with the flag."""
    OUTPUTS_OF_B = auto()
    """Row-parallel: inputs are divided anyway, the outputs of B are with the flag."""
    NOTHING = auto()
    """Replicated layers, embeddings, and experts with expert parallelism."""


@dataclass(frozen=True, slots=True)
class AdaptedLayer:
    """`layers` equal layers that vLLM calls `name`, as one rank holds them.

    An adapter of rank r has r x `inputs` elements in A and r x `outputs` in B; both include all
    slices of a fused layer and all experts. `parts` are the layers that it fuses, by the names that
    adapters have. `own_bytes` do not depend on the rank, `slot_bytes` are those of each slot and
    of one more. `never_sharded`: vLLM wraps it only without `--fully-sharded-loras`.
    """

    name: str
    inputs: int
    outputs: int
    shards: Shards
    parts: tuple[str, ...] = ()
    layers: int = 1
    own_bytes: int = 0
    slot_bytes: int = 0
    never_sharded: bool = False

    def times(self, layers: int) -> "AdaptedLayer":
        """The same layer `layers` times."""
        return replace(self, layers=self.layers * layers)

    def is_target(self, targets: Collection[str]) -> bool:
        """Whether a target is the layer or one of those that it fuses.

        Source: vLLM 0.32.0, vllm/lora/utils.py is_in_target_modules.
        """
        return self.name in targets or any(part in targets for part in self.parts)

    def buffer_bytes(self, options: EngineOptions, tensor: int) -> int:
        """Bytes of the buffers of all slots on one of `tensor` ranks.

        Source: vLLM 0.32.0, create_lora_weights in vllm/lora/layers. Sizes that the ranks do not
        divide evenly are refused before (`check_adapters`), and count rounded up here.
        """
        rank = options.max_lora_rank
        rank_of_a, outputs = rank, self.outputs
        if options.fully_sharded_loras and self.shards is Shards.RANK_OF_A:
            rank_of_a = -(-rank // tensor)
        if options.fully_sharded_loras and self.shards is Shards.OUTPUTS_OF_B:
            outputs = -(-outputs // tensor)
        elements = options.max_loras * (rank_of_a * self.inputs + rank * outputs)
        flags = self.slot_bytes * (options.max_loras + 1)
        return self.layers * (elements * COMPUTE_BYTES + flags + self.own_bytes)


def fused(
    name: str, parts: tuple[AdaptedLayer, ...], model: AdaptedClass
) -> tuple[AdaptedLayer, ...]:
    """The layer `name` that fuses `parts`, or the parts of a class that keeps them apart.

    Each part is a slice with an A of its own, unless the class has a single one.
    """
    if name in model.separate:
        return parts
    slices = parts[:1] if name in model.one_slice else parts
    return (
        AdaptedLayer(
            name,
            inputs=sum(part.inputs for part in slices),
            outputs=sum(part.outputs for part in parts),
            shards=parts[0].shards,
            parts=tuple(part.name for part in parts),
        ),
    )
