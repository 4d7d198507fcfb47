"""How fast one replica serves the workload: a roofline with effective figures.

Algorithm. The replica holds a batch B of requests at once, each of which gets one token a round.
In the time that a request takes for its output, every other one is replaced once, so a round also
reads B x input / output tokens of new prompts. With pipeline stages the batch goes round in as many
parts:

    round  = stages x step(B / stages, B / stages x input / output)
    tokens a second = B / round

A request waits for its first token while its own prompt is read, piece by piece, in steps that also
decode; while prompts that came before it are read, which at random arrivals is rho / (2 (1 - rho))
times the reading of one (M/D/1, rho: the share of time spent on prompts); and, when more requests
are demanded than the batch holds, while those before it are served (Little's law).
"""

from math import ceil
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions, MemoryAccount, Parallelism
from tonnage.fit.precision import loaded_quantization
from tonnage.throughput.figures import load_throughput_data
from tonnage.throughput.model import Demand, ThroughputEstimate
from tonnage.throughput.speed import device_speed
from tonnage.throughput.step import StepTime, time_steps
from tonnage.throughput.work import token_work

_BUSIEST: Final = 0.99
"""A queue that is busier has no mean worth telling."""


def estimate_throughput(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    parallelism: Parallelism,
    options: EngineOptions,
    account: MemoryAccount,
    demand: Demand,
    catalog: Catalog,
    share: float = 1.0,
) -> ThroughputEstimate | None:
    """Estimate one replica under its demand, on devices that are `share` of a GPU each.

    None when the catalogue lacks the accelerator's bandwidth, operations or links.
    """
    data, release = load_throughput_data(), catalog.release(options.vllm_version)
    loaded = loaded_quantization(checkpoint.shape, options, accelerator.arch, release)
    architecture = checkpoint.shape.architecture
    speed = device_speed(accelerator, architecture, loaded, parallelism, release, share, data)
    if speed is None:
        return None
    work = token_work(checkpoint.shape, loaded)
    step = time_steps(work, account, parallelism, speed, demand)
    tokens, sequences = _step_limits(account, accelerator, options, release)
    batch = _batch(account, demand, parallelism, sequences)
    stages = parallelism.pipeline
    prompt_tokens = batch / stages * demand.input_tokens / demand.output_tokens
    round_seconds = stages * step.seconds(batch / stages, prompt_tokens)
    rate = batch / round_seconds / demand.output_tokens
    return ThroughputEstimate(
        tokens_per_second=batch / round_seconds,
        time_to_first_token_seconds=_first_token(step, parallelism, demand, batch, rate, tokens),
        time_per_output_token_seconds=round_seconds,
        batch=batch,
        band=speed.band.experts if checkpoint.shape.experts else speed.band.dense,
    )


def _step_limits(
    account: MemoryAccount, accelerator: Accelerator, options: EngineOptions, release: EngineRelease
) -> tuple[int, int]:
    """Tokens and requests that the scheduler puts into a step at most."""
    tier = release.batch_tier(account.device_bytes, accelerator.id)
    default_tokens = tier.offline_batched_tokens if options.offline else tier.max_num_batched_tokens
    tokens = options.max_num_batched_tokens or default_tokens
    return tokens, options.max_num_seqs or tier.max_num_seqs


def _batch(
    account: MemoryAccount, demand: Demand, parallelism: Parallelism, max_num_seqs: int
) -> int:
    """Requests held at once: as many as there are, as the KV cache holds, as vLLM schedules.

    Requests that run are on the average half done: blocks are taken as tokens come.
    """
    held_tokens = demand.input_tokens + ceil(demand.output_tokens / 2)
    held = account.kv_cache_tokens // held_tokens
    return max(1, min(demand.concurrency, parallelism.data * min(held, max_num_seqs)))


def _first_token(
    step: StepTime,
    parallelism: Parallelism,
    demand: Demand,
    batch: int,
    requests_per_second: float,
    tokens_per_step: int,
) -> float:
    """Mean seconds from a request to its first token."""
    decoding = (batch - 1) / parallelism.pipeline
    free = max(1.0, tokens_per_step - decoding / parallelism.data)
    bare = step.seconds(decoding, 0)
    reading = step.seconds(decoding, demand.input_tokens) - bare
    busy = min(reading * requests_per_second * (batch - 1) / batch, _BUSIEST)
    behind_others = min(batch - 1, busy / (2 * (1 - busy))) * reading
    queued = (demand.concurrency - batch) / requests_per_second
    pieces = ceil(demand.input_tokens / free)
    return parallelism.pipeline * (pieces * bare + reading) + behind_others + queued
