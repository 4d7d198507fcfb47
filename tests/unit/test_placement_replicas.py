"""How many replicas a workload gets by itself, and what bounds them."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.gpu_nodes import amd_node
from tests.support.placing import CATALOG, LLAMA_8B, chosen, decide_on, spec_of
from tonnage.fit.options import engine_options
from tonnage.placement.latency import keeps_to
from tonnage.placement.load import Load, load_of
from tonnage.placement.replicas import count_replicas
from tonnage.throughput.model import ThroughputEstimate


def load(**how: Any) -> Load:
    spec = spec_of(**how)
    return load_of(spec, LLAMA_8B, engine_options(spec, CATALOG))


@dataclass
class Estimator:
    """So many milliseconds a token for each request held at once; counts how often it is asked."""

    milliseconds: float = 1.0
    asked: int = 0

    def __call__(self, batch: int) -> ThroughputEstimate:
        self.asked += 1
        seconds = batch * self.milliseconds / 1000
        return ThroughputEstimate(batch / seconds, seconds, seconds, batch, 0.4)


CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "one holds all": ({"workload": {"concurrency": 10}}, 10, 1),
    "one request more": ({"workload": {"concurrency": 11}}, 10, 2),
    "never fewer than asked": (
        {"workload": {"concurrency": 10}, "scaling": {"minReplicas": 3}},
        10,
        3,
    ),
    "never more than 64 by itself": ({"workload": {"concurrency": 1_000_000}}, 10, 64),
    "never more than asked": (
        {"workload": {"concurrency": 100}, "scaling": {"maxReplicas": 4}},
        10,
        4,
    ),
    "what the user wrote": ({"workload": {"concurrency": 100}, "replicas": 2}, 10, 2),
    "what the user wrote, whatever the bounds": (
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
def test_as_many_as_hold_all_requests_within_bounds(
    how: dict[str, Any], most: int, want: int
) -> None:
    assert count_replicas(load(**how), most, Estimator()).count == want


def test_the_estimate_is_that_of_a_replica_with_its_share() -> None:
    found = count_replicas(load(workload={"concurrency": 12}), 5, Estimator())
    assert found.estimate is not None
    assert (found.count, found.estimate.batch) == (3, 4)


def test_the_largest_batch_is_found_in_few_steps() -> None:
    estimator = Estimator(milliseconds=0.001)
    workload = {"concurrency": 1000, "latencyTargets": {"timePerOutputToken": "0.333ms"}}
    assert count_replicas(load(workload=workload), 1000, estimator).count == 4
    assert estimator.asked <= 13


def test_a_bound_on_replicas_leaves_each_with_more_requests_than_the_target_allows() -> None:
    workload = {"concurrency": 10, "latencyTargets": {"timePerOutputToken": "3ms"}}
    wish = load(workload=workload, scaling={"maxReplicas": 2})
    found = count_replicas(wish, 10, Estimator())
    assert found.estimate is not None
    assert (found.count, found.estimate.batch) == (2, 5)
    assert not keeps_to(wish.workload.latency_targets, found.estimate)


QUEUES: dict[str, tuple[dict[str, Any], str | None]] = {
    "all are held": ({"workload": {"concurrency": 20}}, None),
    "nothing is served": ({"workload": {"concurrency": 20}, "replicas": 0}, None),
    "the bound binds": (
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
def test_requests_that_queue_are_told_with_what_binds(how: dict[str, Any], want: str) -> None:
    assert count_replicas(load(**how), 10, Estimator()).note == want


def test_a_replica_holds_no_more_than_vllm_schedules() -> None:
    workload = {"concurrency": 100, "inputTokens": 10, "outputTokens": 10}
    engine = {"vllm": {"maxNumSeqs": 16}}
    option = chosen(decide_on([amd_node("a")], LLAMA_8B, workload=workload, engine=engine))
    assert option.replicas == 7
    fixed = decide_on([amd_node("a")], LLAMA_8B, workload=workload, engine=engine, replicas=2)
    assert "holds 32 of 100 requests at once, 16 a replica" in fixed.message
