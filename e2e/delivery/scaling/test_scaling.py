"""Scaling by load, with the real Prometheus scraping simulated vLLM pods on the real control plane.

Simulated time passes fifteen times as fast as the clock, and the operator looks every second where
it looks every 15 s by default: so its windows are as long to the pods as they are in life.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from e2e.delivery.scaling.followed_load import following
from e2e.doubles.page_server import Page, PageServer
from e2e.doubles.simulated_vllm import GATEWAY_METRIC, SimulatedPods
from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import Predicate, User, condition, has
from e2e.models import inference
from e2e.programs.prometheus import Prometheus
from tests.support.fleets.placing import CATALOG, LLAMA_8B
from tests.support.load.replica_capacity import ReplicaCapacity, replica_capacity
from tonnage.fit.model import EngineOptions, Parallelism

SPEED = 15.0
INTERVAL_SECONDS = 1.0
SCRAPE_INTERVAL = "500ms"
ON = "h100-sxm-80gb"
MAX_MODEL_LEN, INPUT_TOKENS, OUTPUT_TOKENS = 8192, 500, 200
CAPACITY, MI300X_CAPACITY = (
    replica_capacity(
        LLAMA_8B,
        accelerator,
        Parallelism(),
        EngineOptions(CATALOG.default_release, MAX_MODEL_LEN),
        INPUT_TOKENS,
        OUTPUT_TOKENS,
    )
    for accelerator in (ON, "mi300x")
)
SLOW = 300.0
"""Seconds for what takes some of them on a machine without other work."""
MI300X: Json = {"name": "mi300x", "accelerator": "mi300x", "gpusPerNode": 2}
H100: Json = {"name": "h100", "accelerator": ON, "gpusPerNode": 4}
MI300X_POOL, H100_POOL = "amd-mi300x", "nvidia-h100-sxm-80gb"


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


@contextmanager
def scraped(
    prometheus: Prometheus, admin: Admin, capacity: ReplicaCapacity, **others: ReplicaCapacity
) -> Iterator[SimulatedPods]:
    """The pods of `llama`, each of that capacity; those of other placements by name."""
    with SimulatedPods(admin, "llama", {ON: capacity, **others}, speed=SPEED) as pods:
        jobs = [
            pods.scrape_config(SCRAPE_INTERVAL),
            pods.gateway_scrape_config(SCRAPE_INTERVAL),
        ]
        prometheus.start({"scrape_configs": jobs}, {})
        try:
            yield pods
        finally:
            prometheus.stop()


def llama(placement: Json | None = None, **scaling: Any) -> Json:
    """An object without spec.replicas, whose workload needs one replica, by default of one
    accelerator."""
    workload = {
        "maxModelLen": MAX_MODEL_LEN,
        "concurrency": 8,
        "inputTokens": INPUT_TOKENS,
        "outputTokens": OUTPUT_TOKENS,
    }
    manifest = inference(
        "llama",
        "llama-3.1-8b",
        workload=workload,
        placement=placement or {"accelerators": [ON]},
        scaling={
            "maxReplicas": 6,
            "targets": {"timeToFirstToken": "2s"},
            "scaleDown": {"stabilizationWindow": "5s"},
            **scaling,
        },
    )
    del manifest["spec"]["replicas"]
    return manifest


def serves(want: int) -> Predicate:
    """A predicate on a status: so many replicas are wanted and ready."""
    return lambda status: status["desiredReplicas"] == want == status["readyReplicas"]


def follows(reason: str) -> Predicate:
    """A predicate on a status: ScalingActive has this reason."""
    return lambda status: condition(status, "ScalingActive").get("reason") == reason


def wanted_metric(operator: OperatorProcess, namespace: str) -> float:
    """What an autoscaler would read of the operator."""
    series = f'tonnage_wanted_replicas{{name="llama",namespace="{namespace}"}} '
    (line,) = (one for one in operator.metrics().splitlines() if one.startswith(series))
    return float(line.removeprefix(series))


def test_replicas_scale_up_at_once_and_down_after_the_window(
    fleet: UseFleet, user: User, admin: Admin, prometheus: Prometheus, operator: OperatorProcess
) -> None:
    fleet("tiny")
    user.apply(llama())
    user.wait_ready("llama", timeout=SLOW)
    with scraped(prometheus, admin, CAPACITY) as pods:
        user.wait("llama", follows("LoadMeasured"), timeout=SLOW)
        pods.load(3.5 * CAPACITY.most_per_second)
        user.wait("llama", lambda status: status["readyReplicas"] >= 4, timeout=SLOW)
        # What queued meanwhile may ask for more of them for a time.
        user.wait(
            "llama",
            lambda status: serves(4)(status) and wanted_metric(operator, user.namespace) == 4,
            timeout=SLOW,
            why="four replicas, in the status and in the metric",
        )
        pods.load(0.5 * CAPACITY.most_per_second)
        user.wait("llama", serves(1), timeout=SLOW)
        # The operator may know of it before the next look of those that play the pods.
        admin.until(
            "the pods played to be as few", lambda: pods.moments[-1].ready <= 1, timeout=SLOW
        )
        assert min(one.ready for one in pods.moments) == 1
    assert condition(user.status("llama"), "Ready")["status"] == "True"


def test_without_telemetry_replicas_do_not_change(
    fleet: UseFleet, user: User, admin: Admin, prometheus: Prometheus
) -> None:
    fleet("tiny")
    user.apply(llama())
    with scraped(prometheus, admin, CAPACITY) as pods:
        pods.load(1.5 * CAPACITY.most_per_second)
        user.wait("llama", serves(2), timeout=SLOW)
    user.wait("llama", follows("NoOpinion"), timeout=SLOW)
    user.await_quiet()  # what was decided before is done
    serving = user.pods("llama")
    user.await_quiet()  # for no longer than the window would last; nothing is written meanwhile
    with SignIn(prometheus.address) as page:
        admin.until(
            "the operator to have asked in vain a few times",
            lambda: len(page.asked) >= 3,
            timeout=SLOW,
        )
        assert follows("NoOpinion")(user.status("llama"))
    assert user.pods("llama") == serving
    with scraped(prometheus, admin, CAPACITY):
        user.wait("llama", serves(1), timeout=SLOW, why="the load to be followed again")


def test_an_idle_object_scales_to_zero_and_a_queued_request_scales_it_up(
    fleet: UseFleet, user: User, admin: Admin, prometheus: Prometheus
) -> None:
    fleet("tiny")
    queued = {"metric": GATEWAY_METRIC, "matchLabels": {"model": "llama"}}
    user.apply(llama(scaleToZero={"after": "5s", "queuedRequests": queued}))
    user.wait_ready("llama", timeout=SLOW)
    with scraped(prometheus, admin, CAPACITY) as pods:
        user.wait("llama", serves(0), timeout=SLOW)
        admin.until("the last pod to be gone", lambda: not user.pods("llama"), timeout=SLOW)
        pods.load(0.3 * CAPACITY.most_per_second)
        user.wait("llama", serves(1), timeout=SLOW)
        admin.until("a request to be answered", lambda: pods.first_token_seconds, timeout=SLOW)


def test_load_fills_the_cheaper_pool_first_and_releases_it_last(
    fleet: UseFleet, user: User, admin: Admin, prometheus: Prometheus
) -> None:
    """Two MI300X are cheaper. An H100 does 1.09 of what one of them does, and holds three quarters
    of the requests; fewer than two of them are not taken."""
    fleet({"groups": [MI300X, H100]})
    user.apply(llama({"spread": {"policy": "WhenShort", "minReplicasPerPool": 2}}))
    user.wait_ready("llama", timeout=SLOW)
    one = MI300X_CAPACITY.most_per_second
    with scraped(prometheus, admin, CAPACITY, mi300x=MI300X_CAPACITY) as pods:
        await_split(user, pods, 0.5 * one, {MI300X_POOL: 1})
        _, cheaper = await_split(user, pods, 1.5 * one, {MI300X_POOL: 2})
        _, more = await_split(user, pods, 2.5 * one, {MI300X_POOL: 2, H100_POOL: 2})
        assert cheaper < more
        # What queued meanwhile may ask for more H100s for a time: they need not be the same ones.
        status, most = await_split(user, pods, 4.0 * one, {MI300X_POOL: 2, H100_POOL: 3})
        assert cheaper < most
        own, (secondary,) = status["scaling"]["replica"], status["scaling"]["beside"]
        assert (status["scaling"]["placement"], secondary["placement"]) == ("mi300x", ON)
        worth = secondary["replica"]["tokensPerSecond"] / own["tokensPerSecond"]
        assert worth == pytest.approx(CAPACITY.most_per_second / one, rel=0.05)
        _, fewer = await_split(user, pods, 2.5 * one, {MI300X_POOL: 2, H100_POOL: 2})
        assert cheaper < fewer
        _, left = await_split(user, pods, 1.5 * one, {MI300X_POOL: 2})
        assert left == cheaper
        _, last = await_split(user, pods, 0.5 * one, {MI300X_POOL: 1})
        assert last < cheaper


def await_split(
    user: User, pods: SimulatedPods, requests_per_second: float, want: dict[str, int]
) -> tuple[Json, set[str]]:
    """Wait until all replicas that the load asks for are ready, so many in each pool; return the
    status and the pods. Those that are too many go a moment after the status says so."""
    pods.load(requests_per_second)

    def holds(status: Json) -> bool:
        split = {placement["pool"]: placement["replicas"] for placement in status["placements"]}
        return bool(split == want and has("Ready")(status))

    count = sum(want.values())

    def all_of_them() -> tuple[Json, set[str]] | None:
        status, names = user.status("llama"), user.pods("llama")
        return (status, names) if holds(status) and len(names) == count else None

    return user.admin.until(
        f"{want}",
        all_of_them,
        timeout=SLOW,
        describe=lambda: user.admin.describe("infd", "llama", user.namespace),
    )


class SignIn(PageServer):
    """Somebody else at an address, who answers everything with a page; what was asked."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        super().__init__(host, int(port))
        self.asked: list[str] = []

    def answer(self, path: str) -> Page:
        self.asked.append(path)
        return Page(b"<html><body>Sign in to go on</body></html>", "text/html")


@pytest.mark.parametrize(("share", "accurate"), [(1.0, "True"), (0.5, "False")])
def test_status_has_the_measured_next_to_the_predicted_kv_cache(
    fleet: UseFleet, user: User, admin: Admin, prometheus: Prometheus, share: float, accurate: str
) -> None:
    fleet("tiny")
    user.apply(llama())
    tokens = int(share * CAPACITY.kv_cache_tokens) // 16 * 16
    with scraped(prometheus, admin, replace(CAPACITY, kv_cache_tokens=tokens)):
        status = user.wait("llama", has("PredictionAccurate", accurate), timeout=SLOW)
    (placement,) = status["placements"]
    assert placement["measured"]["kvCacheTokens"] == tokens
    assert placement["kvCacheTokens"] == pytest.approx(CAPACITY.kv_cache_tokens, rel=0.02)
    assert has("Ready")(status), "a prediction that was off makes nothing less ready"
