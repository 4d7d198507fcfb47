"""What a Prometheus makes of simulated replicas, as tonnage.telemetry.load asks it: means of gauges
and rates of sums over some scrapes."""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.support.load.simulated_vllm import Served, SimulatedVllm
from tonnage.demand.signals import Mean, MeasuredLoad, PodLoad

_GAUGE_SCRAPES: Final = 4
_RATE_SCRAPES: Final = 8
_NOTHING: Final = Mean(0.0, 0.0)


@dataclass(slots=True)
class _Sums:
    """Seconds and numbers of a replica since its start."""

    first_token: Mean = _NOTHING
    prefill: Mean = _NOTHING
    per_token: Mean = _NOTHING

    def plus(self, served: Served) -> "_Sums":
        """With what the replica did since."""
        first, ended = served.first_token_seconds, served.finished
        prefill = sum(one.first_token_seconds - one.queue_seconds for one in ended)
        return _Sums(
            _add(self.first_token, sum(first), len(first)),
            _add(self.prefill, prefill, len(ended)),
            _add(self.per_token, served.running_seconds, served.tokens_generated),
        )


@dataclass(frozen=True, slots=True)
class _Scrape:
    running: float
    waiting: float
    kv_usage: float
    sums: _Sums


class ScrapedLoad:
    """The samples of the last few scrapes, each `interval` seconds after the one before."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._sums: dict[str, _Sums] = defaultdict(_Sums)
        self._scrapes: dict[str, deque[_Scrape]] = {}

    def learn(self, served: Mapping[str, Served]) -> None:
        """Count what the replicas did."""
        for name, did in served.items():
            self._sums[name] = self._sums[name].plus(did)

    def scrape(self, replicas: Mapping[str, SimulatedVllm]) -> None:
        """Take a sample of each replica that is ready; others are forgotten."""
        self._scrapes = {
            name: self._scrapes.get(name) or deque(maxlen=_RATE_SCRAPES) for name in replicas
        }
        for name, one in replicas.items():
            sample = _Scrape(one.running, one.waiting, one.kv_cache_usage, self._sums[name])
            self._scrapes[name].append(sample)

    def measured(self) -> MeasuredLoad:
        """What is known now; a replica that was scraped once has no rates yet."""
        return MeasuredLoad(
            {
                name: self._load(samples)
                for name, samples in self._scrapes.items()
                if len(samples) > 1
            }
        )

    def _load(self, samples: deque[_Scrape]) -> PodLoad:
        recent = list(samples)[-_GAUGE_SCRAPES:]
        first, last = samples[0].sums, samples[-1].sums
        seconds = (len(samples) - 1) * self._interval
        return PodLoad(
            running=sum(one.running for one in recent) / len(recent),
            waiting=sum(one.waiting for one in recent) / len(recent),
            kv_usage=sum(one.kv_usage for one in recent) / len(recent),
            age_seconds=0.0,
            first_token=_rate(first.first_token, last.first_token, seconds),
            prefill=_rate(first.prefill, last.prefill, seconds),
            per_token=_rate(first.per_token, last.per_token, seconds),
        )


def _add(mean: Mean, seconds: float, observations: float) -> Mean:
    return Mean(mean.seconds + seconds, mean.observations + observations)


def _rate(first: Mean, last: Mean, seconds: float) -> Mean:
    return Mean(
        (last.seconds - first.seconds) / seconds,
        (last.observations - first.observations) / seconds,
    )
