"""An engine that only a test registers is placed, rendered, observed and scaled."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.engines.double_engine import GIB, NAME, TOKEN_BYTES, WEIGHTS_BYTES, double_engine
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import ended
from tonnage.engines.interface import EngineKind
from tonnage.telemetry.load import measure_load
from tonnage.telemetry.pod_metrics import read_page
from tonnage.telemetry.series import Series

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def engine() -> Iterator[EngineKind]:
    with double_engine() as registered:
        yield registered


async def cluster_with(**spec: Any) -> Cluster:
    cluster = Cluster(H100, MI300X)
    cluster.apply("llama", spec_of(**spec))
    await cluster.settle()
    return cluster


def server(cluster: Cluster) -> Any:
    return cluster.pods()[0]["spec"]["containers"][0]


async def test_its_own_memory_decides_where_it_is_placed() -> None:
    cluster = await cluster_with(placement={"accelerators": ["h100-sxm-80gb"]})
    (placement,) = cluster.status()["placements"]
    device = 79.1 * GIB
    assert placement["tensorParallelSize"] == 1
    tokens = (device / 2 - WEIGHTS_BYTES) / TOKEN_BYTES
    assert placement["kvCacheTokens"] == pytest.approx(tokens, rel=0.01)
    many = await cluster_with(workload={"maxModelLen": 8192, "concurrency": 1_000_000})
    assert many.conditions()["Placed"] == ("False", "DoesNotFit")


async def test_its_pods_are_rendered_by_it() -> None:
    cluster = await cluster_with(engine={"vllm": {"extraArgs": ["--fast", "yes"]}})
    container = server(cluster)
    assert container["name"] == NAME
    assert container["image"].startswith("double/")
    assert container["args"][-2:] == ["--fast", "yes"]
    assert {"name": "DOUBLE_QUIET", "value": "1"} in container["env"]
    assert not [one for one in container["env"] if "VLLM" in one["name"]]
    paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe")]
    assert paths == ["/started", "/ready"]
    assert cluster.conditions()["Ready"][0] == "True"


async def test_a_flag_that_it_reserves_is_refused_by_name() -> None:
    cluster = await cluster_with(engine={"vllm": {"extraArgs": ["--model"]}})
    assert cluster.conditions()["Ready"] == ("False", "InvalidSpec")
    assert "spec.engine.double.extraArgs[0]" in cluster.message("Ready")


async def test_only_its_own_container_can_be_changed_by_the_pod_template() -> None:
    containers = [{"name": NAME, "resources": {"requests": {"cpu": "3"}}}]
    cluster = await cluster_with(podTemplate={"spec": {"containers": containers}})
    assert server(cluster)["resources"]["requests"]["cpu"] == "3"
    containers = [{"name": NAME, "image": "mine"}]
    refused = await cluster_with(podTemplate={"spec": {"containers": containers}})
    assert "use spec.engine.double.image" in refused.message("Ready")


async def test_a_failed_start_is_reported_in_its_words() -> None:
    cluster = Cluster(H100)
    cluster.behaviours["llama"] = ended()
    cluster.apply("llama", spec_of())
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    log = "[double] FATAL: nothing\n[double] the model starves: it needs 7 GiB\n"
    cluster.api.set_log(NAMESPACE, pod, NAME, log)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "OutOfMemory")
    assert "the model starves: it needs 7 GiB" in cluster.message("Ready")


async def test_its_measured_cache_is_compared_with_the_prediction() -> None:
    cluster = await cluster_with()
    predicted = cluster.status()["placements"][0]["kvCacheTokens"]
    page = f'double:cache_size{{rank="0",tokens="{predicted - 512}"}} 1\n'
    measured = read_page(page.encode(), NAME)
    assert measured is not None
    cluster.measured["llama"] = measured
    await cluster.resync()
    measured_tokens = cluster.status()["placements"][0]["measured"]["kvCacheTokens"]
    assert measured_tokens == predicted - 512
    assert not cluster.correction_registry.known().entries


async def test_it_is_scaled_by_its_own_metrics() -> None:
    cluster = Cluster(MI300X)
    queries: list[str] = []

    async def ask(query: str) -> tuple[Series, ...]:
        queries.append(query)
        values = {"running": 50.0, "waiting": 30.0, "kv_usage": 0.9, "sampled": NOW - 5}
        pods = [pod["metadata"]["name"] for pod in cluster.pods()]
        return tuple(
            Series({"pod": pod, "signal": signal}, value, NOW)
            for pod in pods
            for signal, value in values.items()
        )

    cluster.measure_load = partial(measure_load, ask, 15.0)
    scaling = {"maxReplicas": 3, "targets": {"waitingRequests": 1}}
    cluster.apply("llama", spec_of(scaling=scaling, replicas=None))
    await cluster.settle()
    for _ in range(4):
        await cluster.wait(15)
    assert cluster.status()["desiredReplicas"] == 3
    assert "double:running" in queries[0]
    assert "vllm" not in queries[0]
