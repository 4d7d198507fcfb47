"""Bytes of weights on one GPU."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, LatentAttention, ModelShape, Quantization
from tonnage.fit.matrix import Split, WeightPart
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.precision import COMPUTE_BYTES, Residence, loaded_quantization, matrix_bytes
from tonnage.fit.tensors import WHOLE, expert_format, rank_matrices, stage_layers
from tonnage.fit.weight_correction import correction_of, stored_parts


def count_parameters(shape: ModelShape) -> Mapping[WeightPart, int]:
    """Weights of the whole model by part, without layers that only predict ahead."""
    counted: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, WHOLE, None):
        counted[matrix.part] += matrix.elements
    return counted


def stored_bytes(shape: ModelShape) -> int:
    """Bytes of all tensors on disk, as the config describes them."""
    return sum(stored_parts(shape).values())


def weights_per_gpu(
    checkpoint: Checkpoint,
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    release: EngineRelease,
) -> int:
    """Bytes that stay on the fullest GPU after loading: what `Model loading took` prints.

    Computed from the shape, matrix by matrix, and corrected by what is known of the files. Buffers
    that vLLM makes itself, cosines and sines and the absorbed copies of latent attention, are
    added as they are.
    """
    shape = checkpoint.shape
    loaded = loaded_quantization(shape, options, accelerator.arch, release)
    padding = release.row_padding.get(accelerator.vendor)
    residence = Residence(accelerator.arch, release.version, padding)
    correction, drafting = correction_of(checkpoint), options.speculative_tokens > 0
    return max(
        correction.apply(parts, parallelism.tensor * parallelism.pipeline) + buffers
        for parts, buffers in (
            _stage_bytes(shape, split, loaded, residence, drafting)
            for split in _stages(shape, parallelism, options, loaded, residence)
        )
    )


def _stages(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    loaded: Quantization | None,
    residence: Residence,
) -> Iterator[Split]:
    experts = expert_format(shape, loaded)
    for stage in range(parallelism.pipeline):
        yield Split(
            tensor=parallelism.tensor,
            pipeline=parallelism.pipeline,
            stage=stage,
            data=parallelism.data,
            expert_parallel=options.enable_expert_parallel,
            expert_padding=residence.layout(experts),
            whole_towers=options.data_parallel_encoder,
        )


@lru_cache(maxsize=8192)
def _stage_bytes(
    shape: ModelShape,
    split: Split,
    loaded: Quantization | None,
    residence: Residence,
    drafting: bool,
) -> tuple[Mapping[WeightPart, int], int]:
    """Weights by part, and buffers, of one rank."""
    parts: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, split, loaded, drafting):
        parts[matrix.part] += matrix_bytes(matrix, COMPUTE_BYTES, residence)
    return parts, _rope_cache_bytes(shape) + _absorbed_bytes(shape, loaded, split)


def _rope_cache_bytes(shape: ModelShape) -> int:
    """Cosines and sines of every position, on every rank.

    Source: vllm/model_executor/layers/rotary_embedding/base.py.
    """
    return sum(cache.positions * cache.width * cache.element_bytes for cache in shape.rope_caches)


def _absorbed_bytes(shape: ModelShape, loaded: Quantization | None, split: Split) -> int:
    """16-bit copies of kv_b_proj that dense latent attention keeps when that layer is quantised.

    Source: vllm/model_executor/layers/attention/mla_attention.py process_weights_after_loading.
    """
    if loaded is None or loaded.experts_only:
        return 0
    total = 0
    for layer, count in stage_layers(shape, split).items():
        kept = dict(layer.exceptions).get("self_attn.kv_b_proj", loaded) is None
        for mixer in layer.mixers:
            if isinstance(mixer, LatentAttention) and not mixer.sparse and not kept:
                width = split.shard(mixer.heads) * (mixer.qk_nope_head_dim + mixer.v_head_dim)
                total += count * width * mixer.kv_lora_rank * COMPUTE_BYTES
    return total
