"""Bytes of weights on one GPU."""

from collections import Counter
from collections.abc import Mapping

from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, ModelShape, Quantization
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.precision import COMPUTE_BYTES, loaded_quantization, matrix_bytes, weight_format
from tonnage.fit.tensors import WHOLE, Split, WeightPart, rank_matrices


def count_parameters(shape: ModelShape) -> Mapping[WeightPart, int]:
    """Weights of the whole model by part, without layers that only predict ahead."""
    counted: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, WHOLE):
        counted[matrix.part] += matrix.elements
    return counted


def stored_bytes(shape: ModelShape) -> int:
    """Bytes of all tensors on disk, as the config describes them.

    Layers that predict ahead are as large as the others; those with experts have experts too.
    """
    total = sum(
        matrix_bytes(matrix, shape.quantization, shape.dtype.size_bytes)
        for matrix in rank_matrices(shape, WHOLE)
    )
    if shape.nextn_layers == 0:
        return total
    heaviest = shape.experts.layers if shape.experts else shape.layers
    layers = sum(
        matrix_bytes(matrix, shape.quantization, shape.dtype.size_bytes)
        for matrix in rank_matrices(shape, WHOLE)
        if matrix.part in (WeightPart.EXPERTS, WeightPart.ATTENTION)
    )
    return total + layers * shape.nextn_layers // heaviest


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
    split = Split(
        tensor=parallelism.tensor,
        pipeline=parallelism.pipeline,
        expert_parallel=options.enable_expert_parallel,
        expert_padding=(
            release.expert_padding.get(accelerator.vendor)
            if weight_format(loaded) == "mxfp4"
            else None
        ),
    )
    padding = release.row_padding.get(accelerator.vendor)
    weights = sum(
        matrix_bytes(matrix, loaded, COMPUTE_BYTES, padding)
        for matrix in rank_matrices(shape, split)
    )
    if checkpoint.weights_bytes is not None:
        weights = -(-weights * checkpoint.weights_bytes // stored_bytes(shape))
    return weights + _rope_cache_bytes(shape) + _absorbed_bytes(shape, loaded, split)


def _rope_cache_bytes(shape: ModelShape) -> int:
    """Cosines and sines of every position, on every rank.

    Source: vllm/model_executor/layers/rotary_embedding/base.py.
    """
    latent = shape.latent_attention
    width = latent.qk_rope_head_dim if latent else shape.head_dim
    return shape.max_position_embeddings * width * COMPUTE_BYTES


def _absorbed_bytes(shape: ModelShape, loaded: Quantization | None, split: Split) -> int:
    """16-bit copies of kv_b_proj that dense latent attention keeps when that layer is quantised.

    Source: vllm/model_executor/layers/attention/mla_attention.py process_weights_after_loading.
    """
    latent = shape.latent_attention
    if latent is None or shape.indexer is not None or loaded is None or loaded.experts_only:
        return 0
    kept = dict(loaded.unquantized).get("self_attn.kv_b_proj", 0)
    layers = split.stage(shape.layers - kept)
    width = split.shard(shape.attention_heads) * (latent.qk_nope_head_dim + latent.v_head_dim)
    return layers * width * latent.kv_lora_rank * COMPUTE_BYTES
