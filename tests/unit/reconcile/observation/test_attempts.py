"""Which plans count as failed, for how long, and how they are read from status."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, L40S, MI300X, WORLD, Cluster, spec_of
from tests.support.specs.observed import observed
from tonnage.api.parse import parse_spec
from tonnage.api.status import FailedPlan, LastReadyPlan
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import Pool
from tonnage.placement.adjustments import EngineAdjustments, ShortfallKind
from tonnage.reconcile.observation.attempts import (
    Attempts,
    circumstances_of,
    read_attempts,
    starts_without_memory,
)
from tonnage.reconcile.observation.plan_terms import needs_revisions

KV_SPACE = (
    "ValueError: To serve at least one request with the model's max seq len (8192), (4.00 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (1.00 GiB)."
)


def failed(plan: str = "0" * 16, **fields: Any) -> FailedPlan:
    """A plan that failed on the pool of MI300X."""
    return FailedPlan.model_validate(
        {
            "hash": plan,
            "pool": "amd-mi300x",
            "accelerator": "mi300x",
            "tensorParallelSize": 1,
            "pipelineParallelSize": 1,
            "image": "vllm:1",
            "reason": "OutOfMemory",
            "message": KV_SPACE,
            "at": "2026-01-01T00:00:00Z",
            "circumstances": "here",
            **fields,
        }
    )


def pools(*groups: dict[str, Any]) -> tuple[Pool, ...]:
    return Cluster(*groups).fleet.view().pools()


def circumstances(raw: dict[str, Any], *groups: dict[str, Any], queue: str | None = None) -> str:
    fleet = Cluster(*(groups or (MI300X,))).fleet.view()
    spec = parse_spec(raw)
    return circumstances_of(observed(spec, queue=queue), spec, fleet, WORLD.catalog)


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"vllm": {"maxNumSeqs": 7}}},
        {"engine": {"vllm": {"version": "v0.27.1"}}},
        {"rollout": {"restartedAt": "2026-01-01T00:00:00Z"}},
        {"template": {"metadata": {"labels": {"team": "a"}}}},
        {"workload": {"concurrency": 9}},
        {"placement": {"policy": "FewestGPUs"}},
    ],
    ids=str,
)
def test_a_change_that_concerns_the_replicas_is_a_new_circumstance(change: dict[str, Any]) -> None:
    assert circumstances(spec_of(**change)) != circumstances(spec_of())


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 5},
        {"scaling": {"maxReplicas": 5}},
        {"approval": "Manual"},
        {"rollout": {"strategy": "Recreate", "progressDeadline": "1h", "maxUnavailable": 2}},
    ],
    ids=str,
)
def test_a_change_that_does_not_concern_the_replicas_is_no_new_circumstance(
    change: dict[str, Any],
) -> None:
    assert circumstances(spec_of(**change)) == circumstances(spec_of())


def test_a_new_pool_is_another_circumstance_and_a_new_node_of_a_known_pool_is_not() -> None:
    alone = circumstances(spec_of(), MI300X)
    assert circumstances(spec_of(), MI300X, H100) != alone
    assert circumstances(spec_of(), {**MI300X, "count": 3}) == alone
    assert circumstances(spec_of(), MI300X, queue="gold") != alone


def test_failed_plans_of_the_same_circumstances_are_read_and_the_latest_sixteen_are_kept() -> None:
    raw = [failed().to_dict(), failed(circumstances="elsewhere").to_dict()]
    assert read_attempts({"failedPlans": raw}, "here").failed == (failed(),)
    attempts = Attempts()
    for number in range(20):
        attempts = attempts.with_failed(failed(f"{number:016x}"))
    assert [int(plan.hash, 16) for plan in attempts.failed] == list(range(4, 20))


@pytest.mark.parametrize("raw", [7, "x", [], [7], [{"hash": 1}], [{}], {"a": {}}], ids=repr)
def test_an_invalid_status_counts_as_absent(raw: Any) -> None:
    assert read_attempts({"failedPlans": raw, "lastReadyPlan": raw}, "here") == Attempts()


def test_placement_gets_a_lack_of_memory_with_its_figures() -> None:
    adjusted = failed(adjustments={"maxNumSeqs": 64}, tensorParallelSize=2)
    others = [
        failed(reason="CrashLooping"),
        failed(message="the kernel killed it: host memory limit exceeded; exit code 137"),
        failed(pool="gone"),
    ]
    attempts = Attempts(failed=(adjusted, *others))
    (tried,) = starts_without_memory(attempts, pools(MI300X))
    assert tried.accelerator_id == "mi300x"
    assert tried.parallelism == Parallelism(2, 1)
    assert tried.adjustments == EngineAdjustments(max_num_seqs=64)
    assert tried.device_bytes == pools(MI300X)[0].device_bytes
    assert tried.shortfall is not None
    assert tried.shortfall.kind is ShortfallKind.KV_CACHE
    assert tried.shortfall.lacking_bytes == 3 * 2**30


def test_a_plan_by_which_all_serve_has_not_failed() -> None:
    last = LastReadyPlan.model_construct(hash="0" * 16, generation=1, template="t")
    known = Attempts(failed=(failed(), failed("1" * 16))).with_ready(last)
    assert [plan.hash for plan in known.failed] == ["1" * 16]
    assert known.failure_of("1" * 16) == failed("1" * 16)
    assert known.failure_of("0" * 16) is None
    assert known.have_failed_on("amd-mi300x", Parallelism(1, 1))
    assert not known.have_failed_on("amd-mi300x", Parallelism(2, 1))


async def test_replica_sets_are_needed_only_for_a_template_that_no_deployment_has() -> None:
    cluster = Cluster(L40S)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    status = cluster.status()
    assert not needs_revisions(status, ())
    assert needs_revisions({**status, "failedPlans": [failed().to_dict()]}, ())
    assert not needs_revisions({"failedPlans": [failed().to_dict()]}, ())
