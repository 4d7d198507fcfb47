"""Whether tensor parallelism divides what each kind of layer shares out over GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.catalog.splits import load_split_rules
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
class Shared:
    """A number of things that GPUs share; `copied` ones are repeated where there are fewer."""

    rule: str
    what: str
    count: int
    copied: bool = False

    def divides(self, tensor: int) -> bool:
        """Whether every GPU gets as much."""
        if self.copied and tensor > self.count:
            return tensor % self.count == 0
        return self.count % tensor == 0


def check_layers(layout: Layout) -> IllegalParallelism | None:
    """The first thing in a layer or an encoder that cannot be shared out, None without any."""
    for shared in _shared_by(layout):
        if not shared.divides(layout.tensor):
            return _refuse(layout, shared)
    return _check_expert_count(layout) or _check_towers(layout)


def _refuse(layout: Layout, shared: Shared) -> IllegalParallelism:
    how = "can be neither split nor copied evenly by" if shared.copied else "are not divisible by"
    others = ["expert parallelism"] if shared.rule == "ExpertSize" else []
    return layout.refuse(
        shared.rule,
        f"{shared.count} {shared.what} {how} TP {layout.tensor}",
        shared.divides,
        *others,
    )


def _shared_by(layout: Layout) -> Iterator[Shared]:
    copied = layout.shape.architecture not in load_split_rules().uncopied_kv_heads
    for layer in layout.shape.layer_counts:
        for mixer in layer.mixers:
            yield from _of_mixer(mixer, copied=copied)
        for block in layer.feed_forwards:
            yield from _of_feed_forward(block, whole=layout.options.enable_expert_parallel)


def _of_mixer(mixer: Mixer, *, copied: bool) -> Iterator[Shared]:
    """Source: layers/linear.py QKVParallelLinear; query heads are checked for the whole model."""
    match mixer:
        case Attention():
            yield Shared("KvHeads", "KV heads", mixer.kv_heads, copied)
        case LatentAttention():
            return
        case CompressedAttention():
            yield Shared("OutputGroups", "groups of the output projection", mixer.output_groups)
        case _:
            yield from _of_state(mixer)


def _of_state(mixer: StateMixer) -> Iterator[Shared]:
    """Sources: layers/mamba/gdn, layers/mamba/mamba_mixer2.py, layers/mamba/mamba_mixer.py and
    short_conv.py (merged columns)."""
    match mixer:
        case LinearAttention():
            yield Shared("LinearAttentionHeads", "key heads of linear attention", mixer.key_heads)
            yield Shared(
                "LinearAttentionHeads", "value heads of linear attention", mixer.value_heads
            )
        case Mamba():
            yield Shared("StateSpace", "channels of a state-space layer", mixer.inner_size)
        case Mamba2():
            yield Shared("StateSpace", "heads of a state-space layer", mixer.heads)
            if mixer.groups > 1:
                yield Shared("StateSpace", "groups of a state-space layer", mixer.groups)
        case ShortConvolution():
            yield Shared("StateSpace", "channels of a short convolution", mixer.width)
        case DeltaAttention():
            yield Shared("LinearAttentionHeads", "heads of delta attention", mixer.heads)
        case LightningAttention():
            yield Shared("LinearAttentionHeads", "heads of lightning attention", mixer.heads)
            yield Shared("LinearAttentionHeads", "norm groups of a head", mixer.norm_groups)


def _of_feed_forward(block: FeedForward, *, whole: bool) -> Iterator[Shared]:
    """Sources: layers/linear.py MergedColumnParallelLinear, fused_moe/config.py."""
    match block:
        case Mlp():
            if not block.whole:
                yield Shared("IntermediateSize", "intermediate channels", block.intermediate_size)
        case Experts():
            if not whole:
                yield Shared("ExpertSize", "channels of an expert", block.intermediate_size)
            shared = block.shared_intermediate_size
            if shared:
                yield Shared("IntermediateSize", "channels of the shared experts", shared)
        case _:
            return


def _check_expert_count(layout: Layout) -> IllegalParallelism | None:
    """Some classes refuse more ranks than experts even where every expert is split."""
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


def _check_towers(layout: Layout) -> IllegalParallelism | None:
    """Encoders are split by their heads and MLPs, unless they are kept whole on every GPU."""
    options = layout.options
    if options.data_parallel_encoder or options.language_model_only:
        return None
    if layout.shape.architecture in load_split_rules().undivided_towers:
        return None
    for tower in layout.shape.towers:
        shared = (("heads", tower.heads), ("channels in the MLPs", tower.inner))
        for what, count in shared:
            if count is not None and count % layout.tensor:
                return layout.refuse(
                    "EncoderHeads",
                    f"{count} {what} of an encoder are not divisible by TP {layout.tensor}",
                    divides(count),
                    "--mm-encoder-tp-mode data",
                )
    return None
