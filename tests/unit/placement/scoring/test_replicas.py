"""The number of replicas that a workload gets, and its bounds."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import amd_node
from tests.support.fleets.placing import CATALOG, LLAMA_8B, chosen, decide_on, spec_of
from tonnage.placement.filters.latency import meets_targets
from tonnage.placement.load import Demanded, FullReplica, Load, load_of
from tonnage.placement.scoring.replicas import count_replicas, fill_replica
from tonnage.throughput.model import ThroughputEstimate


def load(demanded: Demanded | None = None, **how: Any) -> Load:
    spec = spec_of(**how)
    return load_of(spec, LLAMA_8B, CATALOG, demanded=demanded)


def follows(demanded: Demanded | None = None, **scaling: Any) -> Load:
    """Return a measured load that the number of replicas follows; one may hold 3 of 10 requests."""
    return load(
        demanded,
        scaling={"targets": {"waitingRequests": 1}, **scaling},
        workload={"concurrency": 10, "latencyTargets": {"timePerOutputToken": "3ms"}},
    )


@dataclass
class Estimator:
    """Milliseconds per token, for each concurrent request; counts its calls."""

    milliseconds: float = 1.0
    calls: int = 0

    def __call__(self, batch: int) -> ThroughputEstimate:
        self.calls += 1
        seconds = batch * self.milliseconds / 1000
        return ThroughputEstimate(batch / seconds, seconds, seconds, batch, 0.4)


CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "one holds all": ({"workload": {"concurrency": 10}}, 10, 1),
    "one request more": ({"workload": {"concurrency": 11}}, 10, 2),
    "never fewer than minReplicas": (
        {"workload": {"concurrency": 10}, "scaling": {"minReplicas": 3}},
        10,
        3,
    ),
    "never more than 64 by default": ({"workload": {"concurrency": 1_000_000}}, 10, 64),
    "never more than maxReplicas": (
        {"workload": {"concurrency": 100}, "scaling": {"maxReplicas": 4}},
        10,
        4,
    ),
    "the user's number": ({"workload": {"concurrency": 100}, "replicas": 2}, 10, 2),
    "the user's number, whatever the bounds": (
        {"workload": {"concurrency": 9}, "replicas": 9, "scaling": {"maxReplicas": 4}},
        10,
        9,
    ),
    "none": ({"workload": {"concurrency": 9}, "replicas": 0}, 10, 0),
    "few enough a replica for the target": (
        {"workload": {"concurrency": 10, "latencyTargets": {"timePerOutputToken": "3ms"}}},
        10,
        4,
    ),
    "one a replica where even that is too slow": (
        {"workload": {"concurrency": 10, "latencyTargets": {"timePerOutputToken": "0.5ms"}}},
        10,
        10,
    ),
    "both targets": (
        {
            "workload": {
                "concurrency": 10,
                "latencyTargets": {"timePerOutputToken": "5ms", "timeToFirstToken": "2ms"},
            }
        },
        10,
        5,
    ),
}


@pytest.mark.parametrize(("how", "most", "want"), CASES.values(), ids=CASES.keys())
def test_there_are_as_many_as_hold_all_requests_within_bounds(
    how: dict[str, Any], most: int, want: int
) -> None:
    assert count_replicas(load(**how), most, Estimator()).count == want


def test_the_estimate_is_that_of_a_replica_with_its_share() -> None:
    replicas = count_replicas(load(workload={"concurrency": 12}), 5, Estimator())
    assert replicas.estimate is not None
    assert (replicas.count, replicas.estimate.batch) == (3, 4)


def test_the_largest_batch_is_found_in_few_steps() -> None:
    estimator = Estimator(milliseconds=0.001)
    workload = {"concurrency": 1000, "latencyTargets": {"timePerOutputToken": "0.333ms"}}
    assert count_replicas(load(workload=workload), 1000, estimator).count == 4
    assert estimator.calls <= 13


def test_a_bound_on_replicas_leaves_each_with_more_requests_than_the_target_allows() -> None:
    workload = {"concurrency": 10, "latencyTargets": {"timePerOutputToken": "3ms"}}
    bounded = load(workload=workload, scaling={"maxReplicas": 2})
    replicas = count_replicas(bounded, 10, Estimator())
    assert replicas.estimate is not None
    assert (replicas.count, replicas.estimate.batch) == (2, 5)
    assert not meets_targets(bounded.workload.latency_targets, replicas.estimate)


QUEUES: dict[str, tuple[dict[str, Any], str | None]] = {
    "all requests fit": ({"workload": {"concurrency": 20}}, None),
    "nothing is served": ({"workload": {"concurrency": 20}, "replicas": 0}, None),
    "the bound is too low": (
        {"workload": {"concurrency": 25}, "scaling": {"maxReplicas": 2}},
        "holds 20 of 25 requests at once, 10 a replica; the others queue"
        " (spec.scaling.maxReplicas is 2)",
    ),
    "the user wrote too few": (
        {"workload": {"concurrency": 25}, "replicas": 1},
        "holds 10 of 25 requests at once, 10 a replica; the others queue (spec.replicas is 1)",
    ),
}


@pytest.mark.parametrize(("how", "want"), QUEUES.values(), ids=QUEUES.keys())
def test_queueing_requests_are_noted_with_the_bound(how: dict[str, Any], want: str) -> None:
    assert count_replicas(load(**how), 10, Estimator()).note == want


def test_a_replica_holds_no_more_than_vllm_schedules() -> None:
    workload = {"concurrency": 100, "inputTokens": 10, "outputTokens": 10}
    engine = {"vllm": {"maxNumSeqs": 16}}
    option = chosen(decide_on([amd_node("a")], LLAMA_8B, workload=workload, engine=engine))
    assert option.replicas == 7
    fixed = decide_on([amd_node("a")], LLAMA_8B, workload=workload, engine=engine, replicas=2)
    assert "holds 32 of 100 requests at once, 16 a replica" in fixed.message


@pytest.mark.parametrize(
    ("demanded", "scaling", "want"),
    [
        (Demanded(7), {}, 7),
        (Demanded(7), {"maxReplicas": 5}, 5),
        (Demanded(1), {"minReplicas": 2}, 2),
        (Demanded(0), {"minReplicas": 2}, 0),
        # A full one here generates 1000 tokens a second.
        (Demanded(7, 1000.0), {}, 7),
        (Demanded(7, 999.999), {}, 7),
        (Demanded(7, 2500.0), {}, 18),
        (Demanded(7, 100.0), {}, 1),
        (Demanded(1, 9.0), {}, 1),
        (Demanded(1, 9.0), {"minReplicas": 2}, 2),
    ],
)
def test_the_measured_load_decides_the_number(
    demanded: Demanded, scaling: dict[str, Any], want: int
) -> None:
    measured = follows(demanded, **scaling)
    full = fill_replica(measured, 10, 256, Estimator())
    assert full is not None
    assert full.tokens_per_second == pytest.approx(1000)
    assert count_replicas(measured, 10, Estimator(), full).count == want


@pytest.mark.parametrize(
    ("each", "want"), [(1000.0, "7"), (999.999, "6.99"), (1004.0, "7.02"), (2500.0, "17.5")]
)
def test_equivalent_replicas_elsewhere_are_counted_in_hundredths(each: float, want: str) -> None:
    measured = follows(Demanded(7, each), maxReplicas=20)
    replicas = count_replicas(measured, 10, Estimator(), FullReplica(3, 256, 1000.0))
    assert replicas.needed == Fraction(want)
    assert replicas.count == ceil(Fraction(want))


def test_the_estimate_does_not_depend_on_the_current_number_of_replicas() -> None:
    for count in (1, 4, 40):
        replicas = count_replicas(follows(Demanded(count)), 10, Estimator())
        assert replicas.estimate is not None
        assert replicas.estimate.batch == 3
        assert replicas.note is None


def test_a_full_replica_holds_as_many_requests_as_meet_the_targets() -> None:
    full = fill_replica(follows(), 1000, 256, Estimator())
    assert full == FullReplica(3, 256, pytest.approx(1000), pytest.approx(1.0))  # type: ignore[arg-type]  # compares alike
    assert fill_replica(load(), 1000, 256, Estimator()) is None
