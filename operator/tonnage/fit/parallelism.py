"""Which splits vLLM accepts: the rules it checks before and while it builds the model."""

import math
from collections.abc import Callable, Iterator
from typing import Final

from tonnage.catalog.engine import EngineRelease
from tonnage.checkpoint.model import Attention, LatentAttention, ModelShape, Quantization
from tonnage.fit.matrix import Matrix, Split, WeightPart
from tonnage.fit.model import EngineOptions, IllegalParallelism, Parallelism
from tonnage.fit.tensors import rank_matrices

Check = Callable[[ModelShape, Parallelism, EngineOptions, EngineRelease], IllegalParallelism | None]


def check_parallelism(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """The first rule that the split breaks, None when vLLM accepts it."""
    for check in _CHECKS:
        illegal = check(shape, parallelism, options, release)
        if illegal is not None:
            return illegal
    return None


def legal_degrees(
    shape: ModelShape, options: EngineOptions, release: EngineRelease, max_gpus: int
) -> tuple[Parallelism, ...]:
    """Tensor-parallel splits within a node of `max_gpus` GPUs, smallest first."""
    candidates = (
        Parallelism(tensor=size) for size in release.tensor_parallel_sizes if size <= max_gpus
    )
    return tuple(
        candidate
        for candidate in candidates
        if check_parallelism(shape, candidate, options, release) is None
    )


def _check_attention_heads(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """Source: vllm/config/model.py verify_with_parallel_config."""
    tensor = parallelism.tensor
    for mixer in shape.mixer_counts:
        if isinstance(mixer, Attention | LatentAttention) and mixer.heads % tensor:
            return IllegalParallelism(
                "AttentionHeads", f"{mixer.heads} attention heads are not divisible by TP {tensor}"
            )
    return None


def _check_kv_heads(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """KV heads are shared out or replicated evenly; source: linear.py QKVParallelLinear."""
    if shape.latent_attention is not None:
        return None
    tensor = parallelism.tensor
    for kv_heads in {m.kv_heads for m in shape.mixer_counts if isinstance(m, Attention)}:
        if max(kv_heads, tensor) % min(kv_heads, tensor):
            return IllegalParallelism(
                "KvHeads", f"{kv_heads} KV heads can be neither split nor replicated by TP {tensor}"
            )
    return None


def _check_linear_attention(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """Source: vllm/model_executor/models/qwen3_next.py."""
    linear, tensor = shape.linear_attention, parallelism.tensor
    if linear is None or (linear.key_heads % tensor == 0 and linear.value_heads % tensor == 0):
        return None
    return IllegalParallelism(
        "LinearAttentionHeads",
        f"{linear.key_heads} key and {linear.value_heads} value heads of linear attention are not "
        f"both divisible by TP {tensor}",
    )


def _check_experts(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """Expert parallelism needs experts, as many on each rank.

    Source: vllm/model_executor/layers/fused_moe/layer.py; uneven counts fail on some paths only.
    """
    if not options.enable_expert_parallel:
        return None
    if shape.experts is None:
        return IllegalParallelism("ExpertParallel", "a dense model has no experts to distribute")
    count, tensor = shape.experts.count, parallelism.tensor
    if count % tensor == 0:
        return None
    return IllegalParallelism("ExpertParallel", f"{count} experts are not divisible by TP {tensor}")


def _check_pipeline(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """Source: SupportsPP in vllm/model_executor/models/interfaces.py."""
    stages = parallelism.pipeline
    if stages == 1:
        return None
    if shape.architecture in release.no_pipeline:
        return IllegalParallelism(
            "PipelineParallel", f"{shape.architecture} does not support pipeline parallelism"
        )
    if stages > shape.layers:
        return IllegalParallelism(
            "PipelineParallel", f"{shape.layers} layers cannot fill {stages} pipeline stages"
        )
    return None


def _check_quantization(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """Weights that share a scale must stay on one rank.

    Sources: layers/quantization/utils/fp8_utils.py validate_fp8_block_shape,
    vllm/distributed/utils.py verify_group_size_divides_partition.
    """
    stored = shape.quantization
    if stored is None or parallelism.tensor == 1:
        return None
    split = Split(tensor=parallelism.tensor, expert_parallel=options.enable_expert_parallel)
    for matrix in _row_parallel(shape, split, stored):
        if stored.block is not None:
            illegal = _check_block(matrix, stored, stored.block, release, shape, parallelism)
        else:
            illegal = _check_group(matrix, stored, release, parallelism)
        if illegal is not None:
            return illegal
    return None


def _row_parallel(shape: ModelShape, split: Split, stored: Quantization) -> Iterator[Matrix]:
    """Quantised matrices whose input is shared out over ranks."""
    for matrix in rank_matrices(shape, split, stored):
        if matrix.row_parallel and matrix.stored is not None and matrix.elements:
            yield matrix


def _check_block(
    matrix: Matrix,
    stored: Quantization,
    block: tuple[int, int],
    release: EngineRelease,
    shape: ModelShape,
    parallelism: Parallelism,
) -> IllegalParallelism | None:
    """FP8 blocks; experts of plain fp8 checkpoints get finer blocks in newer releases.

    Source: layers/fused_moe/oracle/fp8.py refine_fp8_moe_block_shape.
    """
    if matrix.columns % block[1] == 0:
        return None
    if matrix.part is WeightPart.EXPERTS and release.refines_fp8_moe_blocks:
        refined = math.gcd(*block, matrix.columns, shape.hidden_size)
        if stored.method == "fp8" and refined >= release.min_refined_fp8_block:
            return None
    return _straddled(matrix, "FP8 blocks", block[1], parallelism)


def _check_group(
    matrix: Matrix, stored: Quantization, release: EngineRelease, parallelism: Parallelism
) -> IllegalParallelism | None:
    """Integer weights in groups; four-bit floats and what the release pads may be cut anywhere."""
    group = stored.group_size
    if group is None or stored.is_float or matrix.columns % group == 0:
        return None
    if stored.method in release.padded_group_methods:
        return None
    return _straddled(matrix, "groups", group, parallelism)


def _straddled(
    matrix: Matrix, what: str, size: int, parallelism: Parallelism
) -> IllegalParallelism:
    layer = "experts" if matrix.part is WeightPart.EXPERTS else matrix.name
    return IllegalParallelism(
        "QuantizationBlock",
        f"TP {parallelism.tensor} leaves {matrix.columns} inputs a GPU in {layer}, which is not "
        f"divisible by the {what} of {size} weights that share a scale",
    )


_CHECKS: Final[tuple[Check, ...]] = (
    _check_attention_heads,
    _check_kv_heads,
    _check_linear_attention,
    _check_experts,
    _check_pipeline,
    _check_quantization,
)
