"""Estimate how fast one replica serves the workload: a roofline with effective figures.

Algorithm. The replica runs a batch of B requests, each of which gets one token per round. While a
request generates its output, every other request is replaced once, so a round also prefills
B x input / output prompt tokens. Pipeline stages divide the batch into as many parts:

    round  = stages x step(B / stages, B / stages x input / output)
    tokens per second = B / round

On several nodes, each stage also sends its hidden states to the next node; a tensor- or
data-parallel group over several nodes exchanges tokens between them in every layer.

The time to first token is the sum of three waits: for the request's own prompt, which the engine
prefills in chunks in steps that also decode; for earlier prompts, at random arrivals
rho / (2 (1 - rho)) times the prefill of one prompt (M/D/1, rho: the share of time in prefill); and,
when the demand exceeds the batch, for earlier requests (Little's law).
"""

from math import ceil
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions, MemoryAccount, Parallelism
from tonnage.fit.weights.precision import loaded_quantization
from tonnage.throughput.figures import ThroughputData, load_throughput_data
from tonnage.throughput.model import Demand, ThroughputEstimate
from tonnage.throughput.speed import Speed, device_speed
from tonnage.throughput.step import StepTime, over_nodes, time_steps
from tonnage.throughput.work import token_work

_MAX_UTILIZATION: Final = 0.99
"""Limit of rho, above which the mean wait diverges."""


def estimate_throughput(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    parallelism: Parallelism,
    options: EngineOptions,
    account: MemoryAccount,
    demand: Demand,
    catalog: Catalog,
    share: float = 1.0,
    node_bytes_per_second: float | None = None,
) -> ThroughputEstimate | None:
    """Estimate one replica under its demand, on devices with `share` of a GPU each. A GPU sends
    `node_bytes_per_second` to another node.

    Returns None when the catalogue lacks the accelerator's bandwidth, operations or links, or where
    the replica has several nodes and what these send is not known.
    """
    data, release = load_throughput_data(), catalog.release(options.release)
    loaded = loaded_quantization(checkpoint.shape, options, accelerator.arch, release)
    architecture = checkpoint.shape.architecture
    speed = device_speed(accelerator, architecture, loaded, parallelism, release, share, data)
    if speed is None or (parallelism.nodes > 1 and node_bytes_per_second is None):
        return None
    work = token_work(checkpoint.shape, loaded)
    step = time_steps(work, account, parallelism, speed, demand)
    if parallelism.nodes > 1 and node_bytes_per_second is not None:
        step = over_nodes(step, parallelism, node_bytes_per_second, data)
    max_tokens, max_num_seqs = _find_step_limits(account, accelerator, options, release)
    batch = _estimate_batch(account, demand, parallelism, max_num_seqs)
    stages = parallelism.pipeline
    prompt_tokens = batch / stages * demand.input_tokens / demand.output_tokens
    round_seconds = stages * step.seconds(batch / stages, prompt_tokens)
    request_rate = batch / round_seconds / demand.output_tokens
    return ThroughputEstimate(
        tokens_per_second=batch / round_seconds,
        time_to_first_token_seconds=_estimate_first_token(
            step, parallelism, demand, batch, request_rate, max_tokens
        ),
        time_per_output_token_seconds=round_seconds,
        batch=batch,
        band=_find_band(speed, checkpoint, parallelism, data),
    )


def _find_band(
    speed: Speed, checkpoint: Checkpoint, parallelism: Parallelism, data: ThroughputData
) -> float:
    """Return the uncertainty of the estimate, which is larger over several nodes."""
    band = speed.band.experts if checkpoint.shape.experts else speed.band.dense
    return min(1.0, band + data.several_nodes.band) if parallelism.nodes > 1 else band


def _find_step_limits(
    account: MemoryAccount, accelerator: Accelerator, options: EngineOptions, release: EngineRelease
) -> tuple[int, int]:
    """Return the most tokens and the most requests that the scheduler puts into a step."""
    tier = release.batch_tier(account.device_bytes, accelerator.id)
    default_tokens = tier.offline_batched_tokens if options.offline else tier.max_num_batched_tokens
    tokens = options.max_num_batched_tokens or default_tokens
    return tokens, options.max_num_seqs or tier.max_num_seqs


def _estimate_batch(
    account: MemoryAccount, demand: Demand, parallelism: Parallelism, max_num_seqs: int
) -> int:
    """Return the running requests, limited by demand, KV cache and scheduler.

    A running request has half of its output on average, as the engine allocates blocks gradually.
    """
    tokens_per_request = demand.input_tokens + ceil(demand.output_tokens / 2)
    cached_requests = account.kv_cache_tokens // tokens_per_request
    return max(1, min(demand.concurrency, parallelism.data * min(cached_requests, max_num_seqs)))


def _estimate_first_token(
    step: StepTime,
    parallelism: Parallelism,
    demand: Demand,
    batch: int,
    request_rate: float,
    max_tokens: int,
) -> float:
    """Return the mean seconds from a request to its first token.

    `request_rate` is requests per second, `max_tokens` the most tokens of a step.
    """
    decoding = (batch - 1) / parallelism.pipeline
    chunk_tokens = max(1.0, max_tokens - decoding / parallelism.data)
    decode_step = step.seconds(decoding, 0)
    prefill = step.seconds(decoding, demand.input_tokens) - decode_step
    utilization = min(prefill * request_rate * (batch - 1) / batch, _MAX_UTILIZATION)
    prefill_wait = min(batch - 1, utilization / (2 * (1 - utilization))) * prefill
    queue_wait = (demand.concurrency - batch) / request_rate
    chunks = ceil(demand.input_tokens / chunk_tokens)
    return parallelism.pipeline * (chunks * decode_step + prefill) + prefill_wait + queue_wait
