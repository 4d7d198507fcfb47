"""A day of load in less than four minutes: the real Prometheus and operator, against an oracle.

All of time is compressed: requests, load and the loading of models pass 400 times as fast. Two
looks of the operator are three minutes apart then and a pod loads for six or more, which is slower
than in life. In pure time, with the usual intervals: `python -m benchmarks.in_memory.day_of_load`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from e2e.delivery.scaling.followed_load import following
from e2e.doubles.simulated_vllm import SimulatedPods
from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from e2e.models import inference
from e2e.programs.prometheus import Prometheus
from tests.support.fleets.placing import CATALOG, LLAMA_70B
from tests.support.load.replica_capacity import replica_capacity
from tests.support.load.synthetic_day import (
    DAY_SECONDS,
    SyntheticDay,
    oracle_replica_hours,
    rate_within,
    share_over,
)
from tonnage.fit.model import EngineOptions, Parallelism

SPEED = 400.0
SCRAPE_INTERVAL, INTERVAL_SECONDS = "250ms", 0.5
TARGET_SECONDS = 2.0
ON = "mi300x"
MAX_MODEL_LEN, INPUT_TOKENS, OUTPUT_TOKENS = 32768, 2000, 500
CAPACITY = replica_capacity(
    LLAMA_70B,
    ON,
    Parallelism(),
    EngineOptions(CATALOG.default_release, MAX_MODEL_LEN),
    INPUT_TOKENS,
    OUTPUT_TOKENS,
)
MOST = CAPACITY.most_per_second
DAY = SyntheticDay(quiet=1.2 * MOST, busy=6.5 * MOST)


@pytest.fixture(scope="module")
def shared_operator(
    control_plane: Stack,
    installed: Admin,
    prometheus: Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    folder = tmp_path_factory.mktemp("operator")
    with following(control_plane, folder, prometheus, INTERVAL_SECONDS) as process:
        yield process


def llama() -> Json:
    workload = {
        "maxModelLen": MAX_MODEL_LEN,
        "concurrency": 100,  # two replicas, until the load is measured
        "inputTokens": INPUT_TOKENS,
        "outputTokens": OUTPUT_TOKENS,
    }
    manifest = inference(
        "llama",
        "llama-3.3-70b",
        workload=workload,
        placement={"accelerators": [ON]},
        scaling={
            "maxReplicas": 8,
            "targets": {"timeToFirstToken": f"{TARGET_SECONDS:.0f}s"},
            "scaleDown": {"stabilizationWindow": "1s"},  # six minutes of this day
        },
    )
    del manifest["spec"]["replicas"]
    return manifest


def test_replicas_follow_the_load_of_a_day(
    fleet: UseFleet,
    user: User,
    admin: Admin,
    prometheus: Prometheus,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    fleet("tiny")
    user.apply(llama())
    user.wait_ready("llama", timeout=240)
    with SimulatedPods(admin, "llama", {ON: CAPACITY}, speed=SPEED) as pods:
        pods.load(DAY.rate(0))
        prometheus.start({"scrape_configs": [pods.hurried_scrape_config(SCRAPE_INTERVAL)]}, {})
        user.wait("llama", lambda status: status["readyReplicas"] == 2, timeout=240)
        pods.load(DAY.rate)
        seconds = DAY_SECONDS / SPEED
        admin.until("the day to end", lambda: pods.elapsed >= DAY_SECONDS, timeout=2 * seconds)
        late = share_over(pods.first_token_seconds, TARGET_SECONDS)
        spent, most = pods.replica_hours, max(one.replicas for one in pods.moments)
        passed = range(round(pods.elapsed))
        pods.load(DAY.rate(0))
        user.wait("llama", lambda status: status["desiredReplicas"] < most, timeout=240)
    must = oracle_replica_hours(DAY, rate_within(CAPACITY, TARGET_SECONDS, 0.1), passed)
    summary = f"{spent:.1f} replica hours, the oracle {must:.1f}; {late:.1%} late; {most} at most"
    record_testsuite_property("day of load", summary)
    assert most >= 6, summary
