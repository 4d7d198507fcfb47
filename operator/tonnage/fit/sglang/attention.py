"""Which kinds of attention a model has, as SGLang groups their caches."""

from dataclasses import dataclass

from tonnage.catalog.sglang import SGLangMemory
from tonnage.checkpoint.model import Attention, LatentAttention
from tonnage.fit.sglang.model import NotCalculatedError, Replica
from tonnage.fit.weights.attention import kv_heads_per_rank


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Layers by the kind of their attention."""

    full: tuple[Attention, ...]
    windows: tuple[Attention, ...]
    latent: tuple[LatentAttention, ...]

    @property
    def sparse(self) -> bool:
        """Whether an indexer selects tokens (DSA)."""
        return any(layer.sparse for layer in self.latent)


def read_layers(replica: Replica, memory: SGLangMemory) -> AttentionLayers:
    """The layers with attention; classes without a pool for windows keep every token in all.

    Raises NotCalculatedError for a model or a device whose memory is not calculated.
    """
    shape, arch = replica.shape, replica.device.arch
    if arch not in memory.architectures:
        known = ", ".join(sorted(memory.architectures))
        raise NotCalculatedError(f"architecture {arch} is not calculated yet: expected {known}")
    if shape.encoders:
        raise NotCalculatedError("models with vision or audio encoders are not calculated yet")
    mixers = [mixer for kind in shape.layer_order for mixer in shape.layer_kinds[kind].mixers]
    attention = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    latent = tuple(mixer for mixer in mixers if isinstance(mixer, LatentAttention))
    others = {type(m).__name__ for m in mixers if not isinstance(m, Attention | LatentAttention)}
    others |= {"Attention with an indexer" for mixer in attention if mixer.indexer is not None}
    others |= {"shared KV" for mixer in attention if not mixer.stores_kv}
    if attention and latent:
        others.add("both kinds of attention")
    if others:
        names = ", ".join(sorted(others))
        raise NotCalculatedError(f"layers of {shape.architecture} are not calculated yet: {names}")
    has_pool = shape.architecture in memory.window_pools.classes
    windows = tuple(layer for layer in attention if has_pool and layer.window is not None)
    full = tuple(layer for layer in attention if not (has_pool and layer.window is not None))
    return AttentionLayers(full, windows, latent)


def row_elements(layers: tuple[Attention, ...], tensor: int) -> int:
    """Elements of one token's keys and values in all `layers` on one of `tensor` GPUs."""
    return sum(
        kv_heads_per_rank(layer.kv_heads, tensor) * (layer.head_dim + layer.value_head_dim)
        for layer in layers
    )
