"""The simulated vLLM pods of the harness, as a real Prometheus scrapes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from e2e.doubles.simulated_vllm import SimulatedPods
from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import ROOT
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.nodes.fleet import apply_fleet, load_fleet
from e2e.programs.prometheus import Prometheus
from tests.support.fleets.placing import CATALOG, LLAMA_8B
from tests.support.load.replica_capacity import replica_capacity
from tonnage.fit.model import EngineOptions, Parallelism

OPTIONS = EngineOptions(CATALOG.default_release, max_model_len=8192)
CAPACITY = replica_capacity(LLAMA_8B, "h100-sxm-80gb", Parallelism(), OPTIONS, 500, 200)

LABELS = {
    "app.kubernetes.io/name": "vllm",
    "app.kubernetes.io/managed-by": "tonnage",
    "tonnage.dev/inferencedeployment": "llama",
    "tonnage.dev/placement": "h100",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Two pods, what plays them, and a Prometheus that scrapes them."""

    pods: SimulatedPods
    prometheus: Prometheus

    def total(self, metric: str) -> float:
        """The sum over all pods, 0 while there is none."""
        return sum(float(one["value"][1]) for one in self.prometheus.query(f"sum({metric})"))


def deployment(replicas: int) -> Json:
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llama"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture
def scene(control_plane: Stack, admin: Admin, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    apply_fleet(control_plane.access, load_fleet("tiny"))
    admin.apply(deployment(2))
    prometheus = Prometheus(tmp_path / "prometheus")
    with SimulatedPods(admin, "llama", {"h100": CAPACITY}, speed=20) as pods:
        prometheus.start({"scrape_configs": [pods.scrape_config("200ms")]}, {})
        prepared = Scene(pods, prometheus)
        admin.until("both pods to be scraped", lambda: prepared.total("up") == 2, timeout=SLOW)
        yield prepared
        prometheus.close()


def test_each_pod_is_a_target_with_the_labels_of_the_shipped_monitor(
    scene: Scene, admin: Admin, namespace: str
) -> None:
    monitor = yaml.safe_load(
        (ROOT / "manifests/monitoring/podmonitor-vllm.yaml").read_text("utf-8")
    )
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    given = {one["targetLabel"] for one in endpoint["relabelings"]}
    by_operator = {"job", "namespace", "pod", "container", "endpoint", "instance"}
    targets = {one["labels"]["pod"]: one["labels"] for one in scene.prometheus.targets()}
    assert set(targets) == {pod["metadata"]["name"] for pod in admin.items("pods")}
    for labels in targets.values():
        assert set(labels) == given | by_operator
        assert (labels["job"], labels["namespace"]) == ("vllm", namespace)
        assert (labels["inferencedeployment"], labels["placement"]) == ("llama", "h100")
        assert labels["endpoint"] == endpoint["port"]


def test_load_shows_in_the_metrics_of_all_pods_until_it_ends(scene: Scene, admin: Admin) -> None:
    assert scene.total("vllm:num_requests_running") == 0
    scene.pods.load(2 * 1.5 * CAPACITY.most_per_second)
    for metric in (
        "num_requests_waiting",
        "generation_tokens_total",
        "e2e_request_latency_seconds_count",
    ):
        what = f"{metric} of both pods"
        admin.until(what, partial(scene.total, f"min(vllm:{metric})"), timeout=SLOW)
    usage = scene.prometheus.query("vllm:kv_cache_usage_perc")
    assert all(0 < float(one["value"][1]) <= 1 for one in usage)
    scene.pods.load(0.0)
    admin.until(
        "all requests to be answered",
        lambda: scene.total("vllm:num_requests_running") == 0,
        timeout=SLOW,
    )


def test_new_pods_are_scraped_and_deleted_pods_are_not(scene: Scene, admin: Admin) -> None:
    admin.apply(deployment(3))
    admin.until("three pods to be scraped", lambda: scene.total("up") == 3, timeout=SLOW)
    admin.apply(deployment(1))
    admin.until("one pod to be left", lambda: len(scene.prometheus.targets()) == 1, timeout=SLOW)
    assert {one.replicas for one in scene.pods.moments} >= {1, 3}
