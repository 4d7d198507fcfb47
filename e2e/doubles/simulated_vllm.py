"""The vLLM pods of one InferenceDeployment, played under load, for a real Prometheus to scrape.

Pods of the harness have no address that answers. So one server on loopback stands in the place of
all of them: every pod that is ready has a /metrics of its own under the pod's name, with the text
of a real vLLM and the values of a simulated replica (tests/support/load/simulated_vllm.py).
Requests come at a rate that the test tells and go evenly to the ready pods, as through the Service.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from e2e.doubles.page_server import Page, PageServer
from e2e.harness.admin import Admin, condition
from e2e.harness.rest import Json
from tests.support.load.poisson import poisson
from tests.support.load.replica_capacity import ReplicaCapacity
from tests.support.load.simulated_service import SimulatedService
from tests.support.load.vllm_exposition import VllmExposition

Rate = Callable[[float], float]
"""Requests a second, by the simulated seconds since the load began."""

GATEWAY_METRIC = "gateway_queued_requests"
"""Requests that wait in front of all pods, by the label `model`."""

_TICK = 0.1
_SEED = 7
_TEXT = "text/plain; version=1.0.0"  # as vLLM sends it to every client
_LOADING = Page(b"", _TEXT, 503)  # as good as the refused connection of a vLLM that loads
_OWNER = "tonnage.dev/inferencedeployment"
_PLACEMENT = "tonnage.dev/placement"
_PORT_NAME = "http"


@dataclass(frozen=True, slots=True)
class Moment:
    """What there was at one time: `at` is in simulated seconds since the load began.

    `replicas` are those that hold GPUs, ready or not.
    """

    at: float
    replicas: int
    ready: int
    requests_per_second: float


class SimulatedPods(PageServer):
    """The server; entered, it plays until it is left.

    `capacities` are by placement, as the pods' label has it. Simulated time passes `speed` times as
    fast as that of the clock.
    """

    def __init__(
        self,
        admin: Admin,
        name: str,
        capacities: Mapping[str, ReplicaCapacity],
        *,
        speed: float = 1.0,
    ) -> None:
        super().__init__()
        self.first_token_seconds: list[float] = []
        self.moments: list[Moment] = []
        self._admin, self._namespace, self._name = admin, admin.namespace, name
        self._capacities = capacities
        self._speed = speed
        self._rate: Rate = lambda _: 0.0
        self._elapsed = 0.0
        self._random = random.Random(_SEED)  # noqa: S311 - a load is to be repeatable
        self._service = SimulatedService()
        self._pods: list[Json] = []
        self._expositions: dict[str, VllmExposition] = {}
        self._lock = Lock()
        self._ended = Event()
        self._player = Thread(target=self._play, name="simulated-vllm", daemon=True)

    def load(self, requests_per_second: float | Rate) -> None:
        """From now on so many requests come, of which simulated time begins anew."""
        constant = requests_per_second
        with self._lock:
            self._rate = constant if callable(constant) else lambda _: constant
            self._elapsed = 0.0
            self.first_token_seconds.clear()
            self.moments.clear()

    @property
    def elapsed(self) -> float:
        """Simulated seconds since the load began."""
        return self._elapsed

    @property
    def replica_hours(self) -> float:
        """Replicas times the simulated hours that they held GPUs since the load began."""
        pairs = pairwise([Moment(0.0, 0, 0, 0.0), *self.moments])
        return sum(now.replicas * (now.at - before.at) for before, now in pairs) / 3600

    def scrape_config(self, interval: str) -> Json:
        """The job by which a Prometheus finds the pods, one request every so often."""
        return {
            "job_name": f"vllm/{self._name}",
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "http_sd_configs": [
                {"url": f"http://{self.address}/targets", "refresh_interval": "1s"}
            ],
        }

    def hurried_scrape_config(self, interval: str) -> Json:
        """The same series from one target, as a federation gives them.

        Prometheus tells itself of new targets every five seconds only, which is half an hour of a
        day that passes in four minutes.
        """
        return {
            "job_name": f"vllm/{self._name}",
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "honor_labels": True,
            "metrics_path": "/all",
            "static_configs": [{"targets": [self.address]}],
        }

    def gateway_scrape_config(self, interval: str) -> Json:
        """The job by which it finds what waits in front of the Service while no pod is ready."""
        return {
            "job_name": "gateway",
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "metrics_path": "/gateway",
            # The same gateway for all tests: of another one the last sample would go stale slowly.
            "static_configs": [{"targets": [self.address], "labels": {"instance": "gateway"}}],
        }

    def answer(self, path: str) -> Page:
        """What Prometheus finds at a path."""
        with self._lock:
            if path == "/targets":
                targets = [self._target(pod) for pod in self._pods]
                return Page(json.dumps(targets).encode(), "application/json")
            if path == "/all":
                return _metrics("".join(self._federated()))
            if path == "/gateway":
                held = f'{GATEWAY_METRIC}{{model="{self._name}"}} {self._service.held}'
                return _metrics(f"# TYPE {GATEWAY_METRIC} gauge\n{held}\n")
            exposition = self._expositions.get(path.strip("/").split("/")[0])
            if exposition is None:
                return _LOADING
            return _metrics(exposition.text())

    def _federated(self) -> Iterator[str]:
        for name, exposition in self._expositions.items():
            yield exposition.text(namespace=self._namespace, pod=name)

    def _target(self, pod: Json) -> Json:
        """A pod with the labels that the shipped PodMonitor gives it."""
        metadata = pod["metadata"]
        labels = {
            "__metrics_path__": f"/{metadata['name']}/metrics",
            "job": metadata["labels"]["app.kubernetes.io/name"],
            "namespace": metadata["namespace"],
            "pod": metadata["name"],
            "container": pod["spec"]["containers"][0]["name"],
            "endpoint": _PORT_NAME,
            "instance": f"{pod.get('status', {}).get('podIP', '')}:{_PORT_NAME}",
            "inferencedeployment": metadata["labels"][_OWNER],
            "placement": metadata["labels"][_PLACEMENT],
            "node": pod["spec"].get("nodeName", ""),
        }
        return {"targets": [self.address], "labels": labels}

    def _play(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_TICK):
            pods = self._admin.items("pods", self._namespace, selector=f"{_OWNER}={self._name}")
            now = time.monotonic()
            with self._lock:
                self._advance([pod for pod in pods if _stays(pod)], (now - before) * self._speed)
            before = now

    def _advance(self, pods: list[Json], seconds: float) -> None:
        self._pods = pods
        ready = {
            pod["metadata"]["name"]: self._capacities[pod["metadata"]["labels"][_PLACEMENT]]
            for pod in pods
            if condition("Ready")(pod)
        }
        self._service.use(ready)
        self._expositions = {
            name: self._expositions.get(name) or VllmExposition(replica, self._name)
            for name, replica in self._service.replicas.items()
        }
        rate = self._rate(self._elapsed)
        served = self._service.advance(seconds, poisson(self._random, rate * seconds))
        for name, did in served.items():
            self.first_token_seconds += did.first_token_seconds
            if name in self._expositions:
                self._expositions[name].learn(did)
        self._elapsed += seconds
        self.moments.append(Moment(self._elapsed, len(pods), len(ready), rate))

    def __enter__(self) -> Self:
        self._player.start()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        super().__exit__(kind, error, trace)
        self._player.join()


def _metrics(text: str) -> Page:
    return Page(text.encode(), _TEXT)


def _stays(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"]
