"""One vLLM replica under load: queue, batch, KV cache and latencies, in simulated time.

Algorithm. Requests are alike: a prompt and an answer of typical length. One waits until the batch
has a place and the prompts before its own are read; its first token comes when its prompt is read
piece by piece in steps that also decode. What reading leaves of the time is decoding, in which all
running requests advance at the same speed, that of the throughput model for so many at once. So
queue, KV cache use and latencies grow with load as the model says, and a replica that is asked for
more than it can do falls behind without end, as vLLM does.

Time goes in ticks, within which the speed of decoding stays; when prompts are read is exact. Not
played: preemption, prefix caching, requests of different lengths.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from tests.support.load.replica_capacity import ReplicaCapacity

LONGEST_TICK: Final = 1.0
"""Seconds for which the speed of decoding may be held; longer spans are played in several ticks."""


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that got its last token; seconds since it came."""

    queue_seconds: float
    first_token_seconds: float
    seconds: float


@dataclass(slots=True)
class Served:
    """What a replica did in a span of time.

    `first_token_seconds` has one entry for each first token that was given, `tokens_generated`
    counts all tokens; `running_seconds` is the time of all requests that ran, one by one.
    """

    first_token_seconds: list[float] = field(default_factory=list)
    finished: list[FinishedRequest] = field(default_factory=list)
    tokens_generated: float = 0.0
    running_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Running:
    """A request in the batch; `began_at` and `ends_at` are progress of the replica."""

    began_at: float
    ends_at: float
    came: float
    queued: float
    first_token: float


class SimulatedVllm:
    """One replica, idle at first. The same arrivals at the same times give the same results."""

    def __init__(self, capacity: ReplicaCapacity) -> None:
        self.capacity = capacity
        self._now = 0.0
        self._waiting: deque[float] = deque()  # when each came
        self._running: deque[_Running] = deque()
        self._progress = 0.0  # tokens of a request that would have run from the beginning
        self._began_at = 0.0  # sum over the batch
        self._reader_free = 0.0
        self._owed = 0.0  # seconds of reading that decoding has still to stand back for
        self._finished = 0
        self._generated = 0.0

    @property
    def running(self) -> int:
        """vllm:num_requests_running."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """vllm:num_requests_waiting."""
        return len(self._waiting)

    @property
    def kv_cache_usage(self) -> float:
        """vllm:kv_cache_usage_perc, 0 to 1: the prompts of the batch and its answers so far."""
        held = self.running * self.capacity.input_tokens + self._answered
        return min(1.0, max(0.0, held / self.capacity.kv_cache_tokens))

    @property
    def _answered(self) -> float:
        """Tokens that the batch has generated so far."""
        return self.running * self._progress - self._began_at

    def advance(self, seconds: float, arrivals: int) -> Served:
        """Let some time pass, more than none, in which so many requests come, evenly spread."""
        served = Served()
        ticks = max(1, ceil(seconds / LONGEST_TICK))
        for tick in range(ticks):
            come = arrivals * (tick + 1) // ticks - arrivals * tick // ticks
            self._tick(seconds / ticks, come, served)
        generated = self._finished * self.capacity.output_tokens + self._answered
        served.tokens_generated = max(0.0, generated - self._generated)
        self._generated += served.tokens_generated
        return served

    def _tick(self, seconds: float, arrivals: int, served: Served) -> None:
        apart = seconds / max(1, arrivals)
        self._waiting.extend(self._now + (number + 0.5) * apart for number in range(arrivals))
        places = self.capacity.most_running - self.running
        decoding = max(0.0, seconds - self._owed)
        self._owed -= seconds - decoding
        speed = decoding / seconds / self.capacity.decode_seconds(self.running)
        served.running_seconds += self.running * seconds
        freed = self._decode(seconds, speed, served)
        self._now += seconds
        self._read_prompts(speed, [self._now - seconds] * places + freed, served)

    def _decode(self, seconds: float, speed: float, served: Served) -> list[float]:
        """Advance the batch by `speed` tokens a second; returns when places in it became free."""
        before, freed = self._progress, []
        self._progress += seconds * speed
        while self._running and self._running[0].ends_at <= self._progress:
            done = self._running.popleft()
            ended = self._now + (done.ends_at - before) / speed
            self._began_at -= done.began_at
            self._finished += 1
            freed.append(ended)
            served.finished.append(
                FinishedRequest(done.queued, done.first_token - done.came, ended - done.came)
            )
        return freed

    def _read_prompts(self, speed: float, places: list[float], served: Served) -> None:
        """Take waiting requests into the batch, each on a place that became free at that time."""
        running = self.running
        step = self.capacity.decode_seconds(running)
        reading, steps = (
            self.capacity.reading_seconds(running),
            self.capacity.prompt_steps(running),
        )
        latency = ceil(steps) * step + self.capacity.stages * reading
        for place in places:
            if not self._waiting:
                break
            begins = max(self._waiting[0], self._reader_free, place)
            if begins >= self._now:
                break
            came = self._waiting.popleft()
            self._reader_free = begins + reading + steps * step
            self._owed += reading
            self._begin(came, begins, begins + latency, speed)
            served.first_token_seconds.append(begins + latency - came)

    def _begin(self, came: float, begins: float, first_token: float, speed: float) -> None:
        """Put a request into the batch; it has decoded since its first token."""
        began_at = self._progress - (self._now - first_token) * speed
        ends_at = began_at + self.capacity.output_tokens
        self._running.append(_Running(began_at, ends_at, came, begins - came, first_token))
        self._began_at += began_at
