"""How fast one replica serves the workload: a roofline with effective figures.

Algorithm. The replica holds a batch B of requests at once. All of them advance by one token in a
decode step, which takes the time to read the weights and the batch's KV cache, plus the operations,
plus a fixed cost a layer (launches and all-reduces), plus the bytes that tensor parallelism sends.
Between the steps the prompts of new requests are prefilled; each of the B requests needs that once
in `output_tokens` steps:

    round  = stages x step(B / stages) + B x prefill / output_tokens
    tokens a second = B / round

On a mesh of point-to-point links (xGMI) a group of n GPUs has only n - 1 links of each GPU; a
switch gives any group the whole bandwidth.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, Quantization
from tonnage.fit.model import EngineOptions, MemoryAccount, Parallelism
from tonnage.fit.precision import loaded_quantization
from tonnage.throughput.figures import load_throughput_data
from tonnage.throughput.model import Demand, ThroughputEstimate
from tonnage.throughput.work import TokenWork, token_work

_ALL_REDUCES_PER_LAYER: Final = 2
_ACTIVATION_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class _Speed:
    """Effective speeds of one GPU in its group: bytes and operations a second, bytes a second of
    an all-reduce (None without one), seconds a layer."""

    read: float
    compute: float
    all_reduce: float | None
    layer_seconds: float


def estimate_throughput(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    parallelism: Parallelism,
    options: EngineOptions,
    account: MemoryAccount,
    demand: Demand,
    catalog: Catalog,
) -> ThroughputEstimate | None:
    """Estimate one replica under its demand.

    None when the catalogue lacks the accelerator's bandwidth, operations or links.
    """
    release = catalog.release(options.vllm_version)
    loaded = loaded_quantization(checkpoint.shape, options, accelerator.arch, release)
    speed = _speed(loaded, accelerator, parallelism)
    if speed is None:
        return None
    tier = release.batch_tier(account.device_bytes, accelerator.id)
    batch = _batch(account, demand, options.max_num_seqs or tier.max_num_seqs)
    work, stages = token_work(checkpoint.shape, loaded), parallelism.pipeline
    context = demand.input_tokens + demand.output_tokens / 2
    step = _decode_step(work, account, parallelism, speed, batch / stages, context)
    prefill = _work_seconds(work, parallelism, speed, demand.input_tokens, demand.input_tokens / 2)
    round_seconds = stages * step + batch * prefill / demand.output_tokens
    first_read = work.weight_bytes(account, parallelism.gpus, demand.input_tokens) / speed.read
    layers = checkpoint.shape.layers * speed.layer_seconds
    return ThroughputEstimate(
        tokens_per_second=batch / round_seconds,
        time_to_first_token_seconds=stages * max(prefill, first_read) + layers,
        time_per_output_token_seconds=round_seconds,
        batch=batch,
        band=load_throughput_data().band,
    )


def _batch(account: MemoryAccount, demand: Demand, max_num_seqs: int) -> int:
    """Requests held at once: as many as there are, as the KV cache holds, as vLLM schedules."""
    held = account.kv_cache_tokens // (demand.input_tokens + demand.output_tokens)
    return max(1, min(demand.concurrency, held, max_num_seqs))


def _speed(
    loaded: Quantization | None, accelerator: Accelerator, parallelism: Parallelism
) -> _Speed | None:
    data = load_throughput_data()
    figures = data.figures(accelerator)
    precision, peak = _compute_peak(loaded, accelerator)
    if figures is None or accelerator.memory_bandwidth is None or peak is None:
        return None
    all_reduce, share = None, data.single_gpu_layer_share
    if parallelism.tensor > 1:
        if accelerator.link_bandwidth is None or accelerator.pair_bandwidth is None:
            return None
        reachable = (parallelism.tensor - 1) * accelerator.pair_bandwidth
        all_reduce = min(accelerator.link_bandwidth, reachable) * data.link_efficiency
        share = 1.0
    efficiency = figures.compute_efficiency
    return _Speed(
        read=accelerator.memory_bandwidth * figures.bandwidth_efficiency,
        compute=peak * efficiency.get(precision, efficiency["bf16"]),
        all_reduce=all_reduce,
        layer_seconds=figures.seconds_per_layer * share,
    )


def _compute_peak(
    loaded: Quantization | None, accelerator: Accelerator
) -> tuple[str, float | None]:
    """The precision that the matrix units work in: weights that they cannot multiply are expanded
    to 16 bits first."""
    if loaded is not None and loaded.is_float:
        if loaded.weight_bits == 8 and accelerator.fp8_flops is not None:
            return "fp8", accelerator.fp8_flops
        if loaded.weight_bits == 4 and accelerator.native_fp4:
            return "fp4", accelerator.fp4_flops
    return "bf16", accelerator.bf16_flops


def _decode_step(
    work: TokenWork,
    account: MemoryAccount,
    parallelism: Parallelism,
    speed: _Speed,
    batch: float,
    context: float,
) -> float:
    """Seconds in which one pipeline stage advances `batch` requests by a token."""
    read = (
        work.weight_bytes(account, parallelism.gpus, batch)
        + work.kv_bytes(account, batch, context)
        + work.state_bytes_moved(parallelism.gpus, batch)
    )
    layers = work.shape.layers / parallelism.pipeline
    return (
        read / speed.read
        + _work_seconds(work, parallelism, speed, batch, context)
        + layers * speed.layer_seconds
    )


def _work_seconds(
    work: TokenWork, parallelism: Parallelism, speed: _Speed, tokens: float, context: float
) -> float:
    """Seconds that one pipeline stage computes and all-reduces for so many tokens."""
    seconds = work.operations(tokens, context) / parallelism.gpus / speed.compute
    if speed.all_reduce is not None:
        group, layers = parallelism.tensor, work.shape.layers / parallelism.pipeline
        message = tokens * work.shape.hidden_size * _ACTIVATION_BYTES
        sent = _ALL_REDUCES_PER_LAYER * layers * message * 2 * (group - 1) / group
        seconds += sent / speed.all_reduce
    return seconds
