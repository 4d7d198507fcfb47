"""The share of a GPU's memory for weights and KV cache: SGLang's --mem-fraction-static.

Source: SGLang 0.5.23, sglang/srt/arg_groups/memory_hook.py handle_gpu_memory_settings.
"""

from tonnage.catalog.sglang import SGLangMemory
from tonnage.fit.sglang.attention import AttentionLayers, read_layers
from tonnage.fit.sglang.model import Replica, StaticFraction


def static_fraction(replica: Replica, memory: SGLangMemory) -> StaticFraction:
    """The fraction that SGLang uses: the argument or its default, less what aiter takes.

    Raises NotCalculatedError for a model or a device whose memory is not calculated.
    """
    options, device = replica.options, replica.device
    layers = read_layers(replica, memory)
    defaults = memory.defaults(device.memory_mib)
    chunk = options.chunked_prefill_size or defaults.chunked_prefill
    wide = options.tensor_parallel_size >= 4
    batch = defaults.decode_batch_tp4 if wide else defaults.decode_batch
    batch = min(batch, options.max_running_requests or batch)
    fraction = options.mem_fraction_static
    if fraction is None:
        reserved = _reserved_mib(replica, layers, chunk, batch, memory)
        fraction = round((device.memory_mib - reserved) / device.memory_mib, 3)
    factor = memory.aiter.fraction if _aiter_takes_memory(replica, layers, memory) else 1.0
    return StaticFraction(fraction * factor, chunk, batch, factor)


def _reserved_mib(
    replica: Replica, layers: AttentionLayers, chunk: int, batch: int, memory: SGLangMemory
) -> float:
    """MiB that the default leaves for activations and graphs."""
    reserve, device = memory.reserve, replica.device
    reserved = reserve.constant_mib + max(chunk, reserve.least_tokens) * reserve.mib_per_token
    options = replica.options
    gpus = options.tensor_parallel_size * options.pipeline_parallel_size
    reserved += gpus * reserve.mib_per_gpu
    reserved += batch * reserve.mib_per_decode_request
    # Prefill graphs are on by default with CUDA only, and not in pipeline stages.
    if not device.is_amd and options.pipeline_parallel_size == 1:
        latent = reserve.latent_prefill_mib
        graphs = memory.count_prefill_graphs(chunk) * reserve.mib_per_prefill_graph
        reserved += latent if layers.latent else graphs
    if device.memory_mib > reserve.least_above_mib:
        reserved = max(reserved, reserve.least_mib)
    return reserved


def _aiter_takes_memory(replica: Replica, layers: AttentionLayers, memory: SGLangMemory) -> bool:
    """Source: sglang/srt/arg_groups/attention_hook.py, model_override_base.py
    get_default_attn_backend."""
    rules, options = memory.aiter, replica.options
    if not replica.device.is_amd or options.context_length <= rules.above_tokens:
        return False
    if not layers.latent:
        return True
    heads = layers.latent[0].heads // options.tensor_parallel_size
    return not layers.sparse and heads in rules.latent_heads
