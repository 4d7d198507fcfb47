"""Bytes of weights on a GPU of each pipeline stage."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import Checkpoint, LatentAttention, ModelShape, Quantization
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.correction import derive_weight_correction, stored_parts
from tonnage.fit.weights.matrix import Sharding, StageDivision, WeightPart
from tonnage.fit.weights.precision import (
    COMPUTE_BYTES,
    Residence,
    loaded_quantization,
    matrix_bytes,
)
from tonnage.fit.weights.tensors import WHOLE, expert_format, rank_matrices, stage_layers


def count_parameters(shape: ModelShape) -> Mapping[WeightPart, int]:
    """The number of weights of the whole model by part, without MTP layers."""
    counts: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, WHOLE, None):
        counts[matrix.part] += matrix.elements
    return counts


def stored_bytes(shape: ModelShape) -> int:
    """Bytes of all tensors on disk, by the config."""
    return sum(stored_parts(shape).values())


def weights_by_stage(
    checkpoint: Checkpoint,
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    release: EngineRelease,
    division: StageDivision | None = None,
) -> tuple[int, ...]:
    """Bytes on a GPU of each pipeline stage after loading: what vLLM prints there as `Model loading
    took`.

    The sum of the shape's matrices, corrected by the checkpoint's files, plus vLLM's own buffers:
    cosines and sines, and the absorbed copies of latent attention. Buffers for LoRA adapters, which
    that line counts too, are a term of their own (fit/lora).
    """
    shape = checkpoint.shape
    loaded = loaded_quantization(shape, options, accelerator.arch, release)
    residence = _residence(accelerator, release)
    correction, with_mtp = derive_weight_correction(checkpoint), options.speculative_tokens > 0
    ranks = parallelism.tensor * parallelism.pipeline
    totals = []
    shardings = stage_shardings(shape, parallelism, options, accelerator, release, division)
    for sharding in shardings:
        parts, buffers = _stage_bytes(shape, sharding, loaded, residence, with_mtp)
        totals.append(correction.apply(parts, ranks) + buffers)
    return tuple(totals)


def _residence(accelerator: Accelerator, release: EngineRelease) -> Residence:
    padding = release.row_padding.get(accelerator.vendor)
    return Residence(accelerator.arch, release.version, padding)


def stage_shardings(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    release: EngineRelease,
    division: StageDivision | None = None,
) -> Iterator[Sharding]:
    """The part of the model that a rank of each pipeline stage holds, the first stage first; the
    stages are those of the `division`, None for vLLM's."""
    loaded = loaded_quantization(shape, options, accelerator.arch, release)
    residence, experts = _residence(accelerator, release), expert_format(shape, loaded)
    for stage in range(parallelism.pipeline):
        yield Sharding(
            tensor=parallelism.tensor,
            pipeline=parallelism.pipeline,
            stage=stage,
            data=parallelism.data,
            expert_parallel=options.enable_expert_parallel,
            expert_padding=residence.layout(experts),
            whole_encoders=options.data_parallel_encoder,
            division=division,
        )


@lru_cache(maxsize=8192)
def _stage_bytes(
    shape: ModelShape,
    sharding: Sharding,
    loaded: Quantization | None,
    residence: Residence,
    with_mtp: bool,
) -> tuple[Mapping[WeightPart, int], int]:
    """Weights by part, and buffers, of one rank."""
    parts: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, sharding, loaded, with_mtp):
        parts[matrix.part] += matrix_bytes(matrix, COMPUTE_BYTES, residence)
    return parts, _rope_cache_bytes(shape) + _absorbed_bytes(shape, loaded, sharding)


def _rope_cache_bytes(shape: ModelShape) -> int:
    """Bytes of the cosines and sines of every position, on every rank.

    Source: vllm/model_executor/layers/rotary_embedding/base.py.
    """
    return sum(cache.positions * cache.width * cache.element_bytes for cache in shape.rope_caches)


def _absorbed_bytes(shape: ModelShape, loaded: Quantization | None, sharding: Sharding) -> int:
    """Bytes of the 16-bit copies of kv_b_proj that dense latent attention keeps if it is quantised.

    Source: vllm/model_executor/layers/attention/mla_attention.py process_weights_after_loading.
    """
    if loaded is None or loaded.experts_only:
        return 0
    total = 0
    for layer, count in stage_layers(shape, sharding).items():
        unquantized = dict(layer.exceptions).get("self_attn.kv_b_proj", loaded) is None
        for mixer in layer.mixers:
            if isinstance(mixer, LatentAttention) and not mixer.sparse and not unquantized:
                width = sharding.shard(mixer.heads) * (mixer.qk_nope_head_dim + mixer.v_head_dim)
                total += count * width * mixer.kv_lora_rank * COMPUTE_BYTES
    return total
