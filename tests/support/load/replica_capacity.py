"""What one vLLM replica can do, by Tonnage's own memory account and throughput model."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.batch import plan_batch
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import EngineOptions, MemoryFit, Parallelism
from tonnage.fit.weights.precision import loaded_quantization
from tonnage.throughput.figures import load_throughput_data
from tonnage.throughput.model import Demand
from tonnage.throughput.speed import device_speed
from tonnage.throughput.step import StepTime, time_steps
from tonnage.throughput.work import token_work


@dataclass(frozen=True)
class ReplicaCapacity:
    """One replica under typical requests of `input_tokens` and `output_tokens`.

    A prompt of `input_tokens` is read with those that decode; a step takes `batched_tokens` of
    both at most. The KV cache holds `kv_cache_tokens`, the scheduler runs `max_num_seqs` requests.
    """

    step: StepTime
    stages: int
    kv_cache_tokens: int
    max_num_seqs: int
    batched_tokens: int
    input_tokens: int
    output_tokens: int

    @cached_property
    def most_running(self) -> int:
        """Requests that run at once; on the average they are half done, as the estimate has it."""
        held = self.kv_cache_tokens // (self.input_tokens + ceil(self.output_tokens / 2))
        return max(1, min(held, self.max_num_seqs))

    @cached_property
    def most_per_second(self) -> float:
        """Requests that a full batch finishes in a second."""
        full = self.most_running
        return full / self.token_seconds(full) / self.output_tokens

    @cached_property
    def growth(self) -> float:
        """By how much of its length alone the time between two tokens grows with each request
        in the same batch, prompts that come between counted in."""
        alone, full = self.token_seconds(1), self.token_seconds(self.most_running)
        return (full / alone - 1) / max(1, self.most_running - 1)

    def token_seconds(self, running: int) -> float:
        """Seconds between two tokens where each request that ends is replaced."""
        prompts = running / self.output_tokens
        return self.decode_seconds(running) + prompts * self.reading_seconds(running)

    def decode_seconds(self, running: int) -> float:
        """Seconds in which each of so many running requests gets one more token."""
        return self.stages * self.step.seconds(max(1, running) / self.stages, 0)

    def reading_seconds(self, running: int) -> float:
        """Seconds that one prompt takes of the replica in addition to its decoding steps."""
        decoding = max(1, running) / self.stages
        bare = self.step.seconds(decoding, 0)
        return self.step.seconds(decoding, self.input_tokens) - bare

    def prompt_steps(self, running: int) -> float:
        """Steps that a prompt fills, without those that decode."""
        free = max(1.0, self.batched_tokens - running / self.stages)
        return self.input_tokens / free


def replica_capacity(
    checkpoint: Checkpoint,
    accelerator_id: str,
    parallelism: Parallelism,
    options: EngineOptions,
    input_tokens: int,
    output_tokens: int,
) -> ReplicaCapacity:
    """The capacity of one replica of a whole-GPU split on that accelerator.

    Raises ValueError where it does not fit, or where the catalogue has no figures of its speed.
    """
    catalog, data = load_catalog(), load_throughput_data()
    accelerator, release = (
        catalog.accelerator(accelerator_id),
        catalog.release(options.release),
    )
    shape, device_bytes = checkpoint.shape, accelerator.memory_bytes or 0
    verdict = judge_fit(checkpoint, accelerator, device_bytes, parallelism, options, 1, catalog)
    loaded = loaded_quantization(shape, options, accelerator.arch, release)
    speed = device_speed(accelerator, shape.architecture, loaded, parallelism, release, 1.0, data)
    if not isinstance(verdict, MemoryFit) or speed is None:
        raise ValueError(f"no capacity of {parallelism} on {accelerator_id}: {verdict}, {speed}")
    batch = plan_batch(shape, options, parallelism, accelerator, device_bytes, release)
    demand = Demand(input_tokens, output_tokens, batch.max_num_seqs)
    work = token_work(shape, loaded)
    return ReplicaCapacity(
        step=time_steps(work, verdict.account, parallelism, speed, demand),
        stages=parallelism.pipeline,
        kv_cache_tokens=verdict.account.kv_cache_tokens,
        max_num_seqs=batch.max_num_seqs,
        batched_tokens=batch.max_num_batched_tokens,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
