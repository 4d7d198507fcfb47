"""What the estimate is asked and what it gives."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What one replica has to serve: typical requests, and how many of them at once."""

    input_tokens: int
    output_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class ThroughputEstimate:
    """Generated tokens a second of one replica under the workload, and the latencies behind it.

    `time_to_first_token_seconds` is the mean over requests that arrive at random moments while the
    demanded number of them is in the system, `time_per_output_token_seconds` the mean between two
    tokens of a request. `batch` is the number of requests held at once, `band` the relative
    uncertainty of tokens a second and of the time between two (0.4: +/-40 %).
    """

    tokens_per_second: float
    time_to_first_token_seconds: float
    time_per_output_token_seconds: float
    batch: int
    band: float
