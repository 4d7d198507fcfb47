"""`python -m benchmarks.in_memory.day_of_load`: a day of load, against an oracle that knew it.

Simulated vLLM replicas serve a synthetic day; their number follows the load by the very functions
of the operator, from what Prometheus would tell it. Pods take their time to load the model. Prints
for each kind of replica and target the GPU-hours over those of the oracle, the requests that waited
longer than the target for their first token, and the changes of a day; for those that miss a bar,
hour by hour what was there and what the oracle had. Exits with 1 when a figure misses its bar.
"""

import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.support.fleets.placing import CATALOG, LLAMA_8B, LLAMA_70B
from tests.support.load.poisson import poisson
from tests.support.load.replica_capacity import ReplicaCapacity, replica_capacity
from tests.support.load.scraped_load import ScrapedLoad
from tests.support.load.simulated_service import SimulatedService
from tests.support.load.synthetic_day import (
    DAY_SECONDS,
    SyntheticDay,
    fewest_replicas,
    oracle_replica_hours,
    rate_within,
    share_over,
)
from tonnage.api.scaling import Scaling
from tonnage.demand.capacity import EstimatedCapacity
from tonnage.demand.opinion import Serving, judge_load
from tonnage.demand.step import next_step
from tonnage.demand.terms import terms_of
from tonnage.demand.window import Recommendations
from tonnage.fit.model import EngineOptions, Parallelism

TARGET_SECONDS: Final = 2.0
"""Within which the first token is to come, whatever target the replicas follow."""
MOST_MORE_GPU_HOURS: Final = 0.10
MOST_OVER_TARGET: Final = 0.10

_OPTIONS: Final = EngineOptions(CATALOG.default_release, max_model_len=32768)
_MIDNIGHT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SEED: Final = 7
_OLDEST_SECONDS: Final = 150.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon the replicas follow: seconds between two looks, and until a new pod is ready."""

    interval: int = 15
    load: int = 180


@dataclass(slots=True)
class Outcome:
    """What a day came to; `by_hour` are the replicas that held GPUs on the average."""

    first_token_seconds: list[float] = field(default_factory=list)
    by_hour: list[float] = field(default_factory=lambda: [0.0] * 24)
    changes: int = 0

    @property
    def replica_hours(self) -> float:
        """Replicas times the hours that they were there, ready or not."""
        return sum(self.by_hour)


class FollowedLoad:
    """Replicas of one kind whose number follows what is measured of them."""

    def __init__(self, capacity: ReplicaCapacity, targets: Mapping[str, Any], pace: Pace) -> None:
        terms = terms_of(Scaling.model_validate({"targets": targets}))
        assert terms is not None, "targets are given"
        self._terms, self._pace, self._capacity = terms, pace, capacity
        self._service, self._scraped = SimulatedService(), ScrapedLoad(pace.interval)
        self._ready: list[str] = []
        self._loading: list[tuple[int, str]] = []
        self._named = 0
        self._before: Recommendations | None = None

    @property
    def replicas(self) -> int:
        """Those that hold GPUs."""
        return len(self._ready) + len(self._loading)

    def play(self, day: SyntheticDay, seconds: range) -> Outcome:
        """Serve the day in that time of it, from as many replicas as its beginning needs."""
        outcome, chance = Outcome(), random.Random(_SEED)
        needed = fewest_replicas(day.rate(seconds.start), 0.9 * self._capacity.most_per_second)
        self._scale_to(needed, seconds.start - self._pace.load)
        for now in seconds:
            self._end_loading(now)
            served = self._service.advance(1.0, poisson(chance, day.rate(now)))
            self._scraped.learn(served)
            for did in served.values():
                outcome.first_token_seconds += did.first_token_seconds
            outcome.by_hour[now // 3600] += self.replicas / 3600
            if now % self._pace.interval == 0:
                before = self.replicas
                self._look(now)
                outcome.changes += self.replicas != before
        return outcome

    def _end_loading(self, now: int) -> None:
        self._ready += [name for at, name in self._loading if at <= now]
        self._loading = [(at, name) for at, name in self._loading if at > now]
        self._service.use(dict.fromkeys(self._ready, self._capacity))

    def _look(self, now: int) -> None:
        """One look of the operator at what Prometheus tells."""
        self._scraped.scrape(self._service.replicas)
        serving = Serving(
            placements=dict.fromkeys(self._ready, "only"),
            ready=frozenset(self._ready),
            next_placement="only",
            reckoned={"only": self._reckoned()},
        )
        opinion = judge_load(self._scraped.measured(), serving, self._terms, _OLDEST_SECONDS)
        at = _MIDNIGHT + timedelta(seconds=now)
        step = next_step(self.replicas, self._before, opinion, self._terms, at)
        self._before = step.recommendations
        self._scale_to(step.replicas, now)

    def _scale_to(self, wanted: int, now: int) -> None:
        """As a Deployment does: what is not ready yet goes first."""
        while self.replicas < wanted:
            self._named += 1
            self._loading.append((now + self._pace.load, f"replica-{self._named}"))
        while self.replicas > wanted:
            (self._loading or self._ready).pop()

    def _reckoned(self) -> EstimatedCapacity:
        """What the operator reckons of a replica by its fit."""
        capacity = self._capacity
        held = capacity.kv_cache_tokens // (capacity.input_tokens + capacity.output_tokens)
        return EstimatedCapacity(
            requests_at_once=min(held, capacity.max_num_seqs),
            max_num_seqs=capacity.max_num_seqs,
            requests_per_second=capacity.most_per_second,
            growth=capacity.growth,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of replica with the day that it serves; the oracle asks `rate_of_one` of each."""

    name: str
    capacity: ReplicaCapacity
    day: SyntheticDay
    rate_of_one: float


def _cases() -> Iterator[Case]:
    for name, checkpoint, accelerator, tensor, lengths, busiest in (
        ("8B on L40S", LLAMA_8B, "l40s", 1, (500, 200), 8.0),
        ("70B on MI300X", LLAMA_70B, "mi300x", 1, (2000, 500), 10.0),
        ("70B on 4 H100", LLAMA_70B, "h100-sxm-80gb", 4, (2000, 500), 5.0),
    ):
        split = Parallelism(tensor)
        capacity = replica_capacity(checkpoint, accelerator, split, _OPTIONS, *lengths)
        busy = busiest * capacity.most_per_second
        of_one = rate_within(capacity, TARGET_SECONDS, MOST_OVER_TARGET)
        yield Case(name, capacity, SyntheticDay(busy / 6, busy), of_one)


def _targets(capacity: ReplicaCapacity) -> dict[str, dict[str, Any]]:
    per_token = capacity.token_seconds(round(0.8 * capacity.most_running))
    return {
        "timeToFirstToken 2s": {"timeToFirstToken": "2s"},
        "waitingRequests 2": {"waitingRequests": 2},
        "kvCacheUsage 0.8": {"kvCacheUsage": 0.8},
        "runningRequests 0.8": {"runningRequests": round(0.8 * capacity.most_running)},
        "timePerOutputToken 0.8": {"timePerOutputToken": f"{round(1e3 * per_token)}ms"},
    }


@dataclass(frozen=True, slots=True)
class Figures:
    """A day against its bars; `more_hours` is what the oracle would not have used, as a share."""

    case: Case
    targets: str
    outcome: Outcome

    @property
    def more_hours(self) -> float:
        oracle = oracle_replica_hours(self.case.day, self.case.rate_of_one, range(DAY_SECONDS))
        return self.outcome.replica_hours / oracle - 1

    @property
    def over_target(self) -> float:
        return share_over(self.outcome.first_token_seconds, TARGET_SECONDS)

    @property
    def hold(self) -> bool:
        """Whether both bars are reached."""
        return self.more_hours <= MOST_MORE_GPU_HOURS and self.over_target <= MOST_OVER_TARGET


def main() -> int:
    """Print all figures; exit with 1 when one misses its bar."""
    console = Console(soft_wrap=True)
    table = Table("REPLICAS", "TARGET", "GPU-HOURS", "OVER TARGET", "CHANGES", "", box=None)
    rows = []
    for case in _cases():
        for label, targets in _targets(case.capacity).items():
            outcome = FollowedLoad(case.capacity, targets, Pace()).play(
                case.day, range(DAY_SECONDS)
            )
            figures = Figures(case, label, outcome)
            rows.append(figures)
            cells = (f"{figures.more_hours:+.1%}", f"{figures.over_target:.1%}")
            holds = "" if figures.hold else "missed"
            table.add_row(case.name, label, *cells, str(outcome.changes), holds)
    console.print(table)
    for figures in rows:
        if not figures.hold:
            _tell_hours(console, figures)
    return 0 if all(figures.hold for figures in rows) else 1


def _tell_hours(console: Console, figures: Figures) -> None:
    """What limits it: replicas hour by hour, and those of the oracle."""
    day, of_one = figures.case.day, figures.case.rate_of_one
    console.print(f"\n{figures.case.name}, {figures.targets}: replicas by hour / of the oracle")
    oracle = (fewest_replicas(day.rate(3600 * hour + 1800), of_one) for hour in range(24))
    pairs = zip(figures.outcome.by_hour, oracle, strict=True)
    console.print(" ".join(f"{had:.1f}/{needed}" for had, needed in pairs))


if __name__ == "__main__":
    sys.exit(main())
