"""The input and the result of the estimate."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """The load of one replica: the tokens of a typical request, and concurrent requests."""

    input_tokens: int
    output_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class ThroughputEstimate:
    """The generated tokens per second of one replica under the workload, and its latencies.

    `time_to_first_token_seconds` is the mean over requests that arrive at random times while the
    demanded number of requests is in the system, `time_per_output_token_seconds` the mean between
    two tokens of a request. `batch` is the number of running requests, `band` the relative
    uncertainty of tokens per second and of the time between two tokens (0.4: +/-40 %).
    """

    tokens_per_second: float
    time_to_first_token_seconds: float
    time_per_output_token_seconds: float
    batch: int
    band: float
