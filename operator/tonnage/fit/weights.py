"""Bytes of weights on one GPU."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from tonnage.catalog.engine import EngineRelease, RowPadding
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, LatentAttention, ModelShape, Quantization
from tonnage.fit.matrix import Split, WeightPart
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.precision import COMPUTE_BYTES, loaded_quantization, matrix_bytes, weight_format
from tonnage.fit.tensors import WHOLE, layer_matrices, rank_matrices, stage_layers


def count_parameters(shape: ModelShape) -> Mapping[WeightPart, int]:
    """Weights of the whole model by part, without layers that only predict ahead."""
    counted: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, WHOLE, None):
        counted[matrix.part] += matrix.elements
    return counted


@lru_cache(maxsize=256)
def stored_bytes(shape: ModelShape) -> int:
    """Bytes of all tensors on disk, as the config describes them."""
    element = shape.dtype.size_bytes
    model = rank_matrices(shape, WHOLE, shape.quantization)
    drafts = (
        matrix
        for layer in shape.draft_layers
        for matrix in layer_matrices(layer, shape.hidden_size, WHOLE, shape.quantization)
    )
    return sum(matrix_bytes(matrix, element) for matrix in (*model, *drafts))


def weights_per_gpu(
    checkpoint: Checkpoint,
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    release: EngineRelease,
) -> int:
    """Bytes that stay on the fullest GPU after loading: what `Model loading took` prints.

    Computed from the shape, matrix by matrix. Where the size of the weight files is known, the
    result is multiplied by its ratio to what the shape says they should be: that accounts for
    layers kept in 16 bits and for parts the config does not mention. Buffers that vLLM makes
    itself, cosines and sines and the absorbed copies of latent attention, are added unscaled.
    """
    shape = checkpoint.shape
    loaded = loaded_quantization(shape, options, accelerator.arch, release)
    padding = release.row_padding.get(accelerator.vendor)
    weights, buffers = max(
        _stage_bytes(shape, split, loaded, padding)
        for split in _stages(parallelism, options, accelerator, release, loaded)
    )
    if checkpoint.weights_bytes is not None:
        weights = -(-weights * checkpoint.weights_bytes // stored_bytes(shape))
    return weights + buffers


def _stages(
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    release: EngineRelease,
    loaded: Quantization | None,
) -> Iterator[Split]:
    padding = release.expert_padding.get(accelerator.vendor)
    for stage in range(parallelism.pipeline):
        yield Split(
            tensor=parallelism.tensor,
            pipeline=parallelism.pipeline,
            stage=stage,
            expert_parallel=options.enable_expert_parallel,
            expert_padding=padding if weight_format(loaded) == "mxfp4" else None,
            whole_towers=options.data_parallel_encoder,
        )


@lru_cache(maxsize=1024)
def _stage_bytes(
    shape: ModelShape, split: Split, loaded: Quantization | None, padding: RowPadding | None
) -> tuple[int, int]:
    """Weights and buffers of one rank."""
    weights = sum(
        matrix_bytes(matrix, COMPUTE_BYTES, padding)
        for matrix in rank_matrices(shape, split, loaded)
    )
    return weights, _rope_cache_bytes(shape) + _absorbed_bytes(shape, loaded, split)


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
