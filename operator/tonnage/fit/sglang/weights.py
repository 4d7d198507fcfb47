"""The weights of a GPU under SGLang, as they differ from vLLM's.

Source: SGLang 0.5.23, sglang/srt/layers/quantization/unquant.py, fp8.py, and
models/deepseek_common/deepseek_weight_loader.py post_load_weights. accuracy/records has logs that
show both differences.
"""

from dataclasses import replace

from tonnage.catalog.model import Accelerator
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import Checkpoint, LatentAttention, Quantization
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.sglang.stages import divide_into_stages
from tonnage.fit.weights.matrix import Sharding
from tonnage.fit.weights.precision import COMPUTE_BYTES, loaded_quantization
from tonnage.fit.weights.tensors import stage_layers
from tonnage.fit.weights.total import stage_shardings, weights_by_stage


def sglang_weights(
    checkpoint: Checkpoint,
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    release: EngineRelease,
) -> tuple[int, ...]:
    """Bytes on a GPU of each pipeline stage after loading, by the layouts of the vLLM `release`.

    SGLang appends no padding to rows on ROCm, and keeps copies of kv_b_proj for all latent
    attention, where vLLM has views of it if it is in 16 bits.
    """
    unpadded = replace(release, row_padding={})
    shape, stages = checkpoint.shape, parallelism.pipeline
    division = divide_into_stages(shape, stages, load_sglang_memory()) if stages > 1 else None
    how = parallelism, options, accelerator, unpadded, division
    loaded = loaded_quantization(shape, options, accelerator.arch, unpadded)
    return tuple(
        weights + _copied_bytes(checkpoint, loaded, sharding)
        for weights, sharding in zip(
            weights_by_stage(checkpoint, *how), stage_shardings(shape, *how), strict=True
        )
    )


def _copied_bytes(checkpoint: Checkpoint, loaded: Quantization | None, sharding: Sharding) -> int:
    """The copies that vLLM does not make: in layers that are not quantised, or sparse."""
    whole = loaded is None or loaded.experts_only
    total = 0
    for layer, count in stage_layers(checkpoint.shape, sharding).items():
        plain = whole or dict(layer.exceptions).get("self_attn.kv_b_proj", loaded) is None
        for mixer in layer.mixers:
            if isinstance(mixer, LatentAttention) and (plain or mixer.sparse):
                width = sharding.shard(mixer.heads) * (mixer.qk_nope_head_dim + mixer.v_head_dim)
                total += count * width * mixer.kv_lora_rank * COMPUTE_BYTES
    return total
