"""Whether every status says of every pool why, and with numbers.

    python -m benchmarks.in_memory.reasons [--statuses N]

Random requests on random fleets of every kind of pool, up to 200 of them; ends with 1 when a bar is
missed: 100 % with a reason, 100 % with numbers, every pool listed or counted, no status larger than
64 KiB.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.support.fleets.placing import CATALOG
from tests.support.fleets.random_fleets import random_pools, random_request
from tonnage.api.conditions import Condition, ConditionType
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.api.text import truncate
from tonnage.fleet.model import Pool
from tonnage.placement.decide import decide
from tonnage.placement.model import Candidate, Decision, Verdict
from tonnage.placement.reasons import ChosenReason, FeasibleReason, RejectedReason
from tonnage.placement.report import MAX_STATUS_BYTES, placement_status, with_candidates

POOLS: Final = 200
_REASONS: Final = {
    Verdict.CHOSEN: {reason.value for reason in ChosenReason},
    Verdict.FEASIBLE: {reason.value for reason in FeasibleReason},
    Verdict.REJECTED: {reason.value for reason in RejectedReason},
}


@dataclass
class Figures:
    """What was counted."""

    statuses: int = 0
    pools: int = 0
    with_reason: int = 0
    with_numbers: int = 0
    accounted: int = 0
    largest: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, decision: Decision) -> None:
        """Count one decision and the status made of it."""
        status = status_of(decision)
        self.statuses += 1
        self.pools += len(decision.candidates)
        self.accounted += len(status.candidates) + sum(status.omitted_candidates.values())
        self.largest = max(self.largest, len(status.model_dump_json(by_alias=True).encode()))
        for candidate in decision.candidates:
            self.with_reason += has_reason(candidate)
            self.with_numbers += bool(re.search(r"\d", candidate.message))
            self.reasons[candidate.reason] += 1

    @property
    def hold(self) -> bool:
        """Whether every bar is met."""
        whole = {self.pools, self.with_reason, self.with_numbers, self.accounted}
        return len(whole) == 1 and self.largest <= MAX_STATUS_BYTES


def has_reason(candidate: Candidate) -> bool:
    """One of the words that the verdict allows, and a sentence."""
    return candidate.reason in _REASONS[candidate.verdict] and bool(candidate.message)


def status_of(decision: Decision) -> InferenceDeploymentStatus:
    """The status with all conditions at their longest."""
    conditions = [
        Condition(
            type=kind,
            status="False",
            observed_generation=1,
            last_transition_time="2026-01-01T00:00:00Z",
            reason=decision.reason,
            message=truncate(decision.message.ljust(1024, "."), 1024),
        )
        for kind in ConditionType
    ]
    placements = []
    if decision.chosen is not None:
        placements.append(
            placement_status(
                decision, decision.chosen, image="i" * 512, replicas=1, ready_replicas=1
            )
        )
    status = InferenceDeploymentStatus(conditions=conditions, placements=placements)
    return with_candidates(status, decision)


def fleets(random: Random, statuses: int) -> Iterator[tuple[Pool, ...]]:
    """Fleets of few pools and, every fourth, of 200 with the longest names there are."""
    for number in range(statuses):
        pools = random_pools(random, random.randrange(16))
        yield _multiply(pools) if pools and number % 4 == 0 else pools


def _multiply(pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
    return tuple(
        replace(pools[number % len(pools)], name=f"pool-{number:03}".ljust(253, "x"))
        for number in range(POOLS)
    )


def measure(statuses: int) -> Figures:
    """The figures over so many statuses; the same ones every time."""
    random, figures = Random(5), Figures()
    for pools in fleets(random, statuses):
        figures.add(decide(random_request(random, pools), pools, CATALOG))
    return figures


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statuses", type=int, default=2000)
    figures = measure(parser.parse_args().statuses)
    share = 100 / max(1, figures.pools)
    print(f"statuses made            {figures.statuses}")
    print(f"pools judged             {figures.pools}")
    print(f"with a reason            {figures.with_reason * share:.2f} % (bar: 100 %)")
    print(f"with numbers             {figures.with_numbers * share:.2f} % (bar: 100 %)")
    print(f"listed or counted        {figures.accounted * share:.2f} % (bar: 100 %)")
    print(f"largest status in bytes  {figures.largest} (bar: {MAX_STATUS_BYTES})")
    for reason, count in figures.reasons.most_common():
        print(f"  {reason:22} {count}")
    print("all bars are met" if figures.hold else "a bar is missed")
    return 0 if figures.hold else 1


if __name__ == "__main__":
    sys.exit(main())
