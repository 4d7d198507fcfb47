"""Whether the tensor-parallel size divides the sharded dimensions of each kind of layer."""

from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.catalog.vllm.parallelism import load_split_rules
from tonnage.checkpoint.mixer_kinds import (
    CompressedAttention,
    DeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    ShortConvolution,
)
from tonnage.checkpoint.model import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    LinearAttention,
    Mixer,
    Mlp,
    StateMixer,
)
from tonnage.fit.layout import Layout, divides
from tonnage.fit.model import IllegalParallelism


@dataclass(frozen=True, slots=True)
class ShardedDimension:
    """A count that GPUs share; `replicated`: they get copies if there are more GPUs."""

    rule: str
    noun: str
    count: int
    replicated: bool = False

    def divides(self, tensor: int) -> bool:
        """Whether every GPU gets equally many."""
        if self.replicated and tensor > self.count:
            return tensor % self.count == 0
        return self.count % tensor == 0


def check_layers(layout: Layout) -> IllegalParallelism | None:
    """The first dimension of a layer or an encoder that cannot be sharded, None without any."""
    for dimension in _sharded_dimensions(layout):
        if not dimension.divides(layout.tensor):
            return _refuse(layout, dimension)
    return _check_expert_count(layout) or _check_encoders(layout)


def _refuse(layout: Layout, dimension: ShardedDimension) -> IllegalParallelism:
    how = (
        "can be neither split nor copied evenly by"
        if dimension.replicated
        else "are not divisible by"
    )
    alternatives = ["expert parallelism"] if dimension.rule == "ExpertSize" else []
    return layout.refuse(
        dimension.rule,
        f"{dimension.count} {dimension.noun} {how} TP {layout.tensor}",
        dimension.divides,
        *alternatives,
    )


def _sharded_dimensions(layout: Layout) -> Iterator[ShardedDimension]:
    replicated = layout.shape.architecture not in load_split_rules().uncopied_kv_heads
    for layer in layout.shape.layer_counts:
        for mixer in layer.mixers:
            yield from _mixer_dimensions(mixer, replicated=replicated)
        for block in layer.feed_forwards:
            yield from _feed_forward_dimensions(
                block, whole_experts=layout.options.enable_expert_parallel
            )


def _mixer_dimensions(mixer: Mixer, *, replicated: bool) -> Iterator[ShardedDimension]:
    """Source: layers/linear.py QKVParallelLinear; `parallelism` checks query heads."""
    match mixer:
        case Attention():
            yield ShardedDimension("KvHeads", "KV heads", mixer.kv_heads, replicated)
        case LatentAttention():
            return
        case CompressedAttention():
            yield ShardedDimension(
                "OutputGroups", "groups of the output projection", mixer.output_groups
            )
        case _:
            yield from _state_dimensions(mixer)


def _state_dimensions(mixer: StateMixer) -> Iterator[ShardedDimension]:
    """Sources: layers/mamba/gdn, layers/mamba/mamba_mixer2.py, layers/mamba/mamba_mixer.py and
    short_conv.py (merged columns)."""
    match mixer:
        case LinearAttention():
            yield ShardedDimension(
                "LinearAttentionHeads", "key heads of linear attention", mixer.key_heads
            )
            yield ShardedDimension(
                "LinearAttentionHeads", "value heads of linear attention", mixer.value_heads
            )
        case Mamba():
            yield ShardedDimension(
                "StateSpace", "channels of a state-space layer", mixer.inner_size
            )
        case Mamba2():
            yield ShardedDimension("StateSpace", "heads of a state-space layer", mixer.heads)
            if mixer.groups > 1:
                yield ShardedDimension("StateSpace", "groups of a state-space layer", mixer.groups)
        case ShortConvolution():
            yield ShardedDimension("StateSpace", "channels of a short convolution", mixer.width)
        case DeltaAttention():
            yield ShardedDimension("LinearAttentionHeads", "heads of delta attention", mixer.heads)
        case LightningAttention():
            yield ShardedDimension(
                "LinearAttentionHeads", "heads of lightning attention", mixer.heads
            )
            yield ShardedDimension(
                "LinearAttentionHeads", "norm groups of a head", mixer.norm_groups
            )


def _feed_forward_dimensions(
    block: FeedForward, *, whole_experts: bool
) -> Iterator[ShardedDimension]:
    """Sources: layers/linear.py MergedColumnParallelLinear, fused_moe/config.py."""
    match block:
        case Mlp():
            if not block.whole:
                yield ShardedDimension(
                    "IntermediateSize", "intermediate channels", block.intermediate_size
                )
        case Experts():
            if not whole_experts:
                yield ShardedDimension(
                    "ExpertSize", "channels of an expert", block.intermediate_size
                )
            channels = block.shared_intermediate_size
            if channels:
                yield ShardedDimension(
                    "IntermediateSize", "channels of the shared experts", channels
                )
        case _:
            return


def _check_expert_count(layout: Layout) -> IllegalParallelism | None:
    """Some classes refuse more ranks than experts although every expert is sharded."""
    experts = layout.shape.experts
    if experts is None or layout.tensor <= experts.count:
        return None
    if layout.shape.architecture not in load_split_rules().at_least_one_each:
        return None
    return layout.refuse(
        "ExpertCount",
        f"TP {layout.tensor} is more than the {experts.count} experts",
        lambda size: size <= experts.count,
    )


def _check_encoders(layout: Layout) -> IllegalParallelism | None:
    """Encoders are sharded by heads and MLPs, unless every GPU holds a whole encoder."""
    options = layout.options
    if options.data_parallel_encoder or options.language_model_only:
        return None
    if layout.shape.architecture in load_split_rules().undivided_encoders:
        return None
    for encoder in layout.shape.encoders:
        dimensions = (("heads", encoder.heads), ("channels in the MLPs", encoder.inner))
        for noun, count in dimensions:
            if count is not None and count % layout.tensor:
                return layout.refuse(
                    "EncoderHeads",
                    f"{count} {noun} of an encoder are not divisible by TP {layout.tensor}",
                    divides(count),
                    "--mm-encoder-tp-mode data",
                )
    return None
