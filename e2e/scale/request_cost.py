"""What each request of the operator takes of an API server that has nothing else to do.

    python -m e2e.scale.request_cost --times 150

One object is served by a real operator, which then ends. What it has made is made again and again
under other names, one request after the other; beside the time stands the CPU of the API server, of
etcd and of the controller manager, which makes a ReplicaSet of each Deployment and an EndpointSlice
of each Service. No controller can be faster than the request by which it makes its child.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from math import inf
from typing import Final

from rich.console import Console
from rich.table import Table

from e2e.admin import Admin
from e2e.failure import run_cli
from e2e.fleet import apply_fleet
from e2e.models import inference
from e2e.operator_process import OperatorProcess
from e2e.rest import Json
from e2e.scale.bench_cluster import own_control_plane
from e2e.scale.latency_probe import Client, open_client
from e2e.scale.usage import cpu_seconds
from e2e.stack import Stack
from tonnage.api.names import LABEL_OWNER
from tonnage.kube.client import AioKubeApi
from tonnage.kube.connection import connect
from tonnage.kube.kinds import DEPLOYMENTS, EVENTS, INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Kind
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Transport

_NAMESPACE, _NAME = "scale-requests", "served"
_GROUP: Final = {"name": "pool", "accelerator": "mi300x", "count": 2}
_MODEL: Final = "llama-3.1-8b"
_AT_REST_SECONDS: Final = 1.0
"""What follows from the last requests has been done by then."""

_PROCESSES: Final = {
    "kube-apiserver": "API server",
    "etcd": "etcd",
    "kube-controller-manager": "controllers",
}
"""Whose CPU is measured, and how the table calls it."""

Repeat = Callable[[int], Awaitable[object]]


class Bench:
    """Repeats requests for what was found of one object."""

    def __init__(self, stack: Stack, admin: Admin, api: AioKubeApi, client: Client) -> None:
        self._pids = [stack.processes[name].pid for name in _PROCESSES]
        self._admin = admin
        self._api = api
        self._client = client
        heads = (f"CPU: {one}" for one in _PROCESSES.values())
        self.table = Table("one request at a time, ms", "time", *heads)

    async def run(self, times: int) -> None:
        """All of them."""
        own = {LABEL_OWNER: _NAME}
        (deployment,) = self._admin.items("deployments", _NAMESPACE)
        (service,) = self._admin.items("services", _NAMESPACE)
        event = self._admin.items("events.events.k8s.io", _NAMESPACE)[0]
        status = self._admin.get("infd", _NAME, _NAMESPACE) or {}
        api, rows = self._api, dict[str, Repeat]()
        rows["read the object"] = lambda _: api.get(INFERENCE_DEPLOYMENTS, _NAMESPACE, _NAME)
        rows["list its Deployments"] = lambda _: api.list(DEPLOYMENTS, _NAMESPACE, own)
        rows["write its status"] = lambda number: api.apply_status(
            INFERENCE_DEPLOYMENTS, _status(status, number)
        )
        for kind, found in ((DEPLOYMENTS, deployment), (SERVICES, service), (EVENTS, event)):
            rows[f"make a {kind.kind} by apply"] = self._by_apply(kind, found)
            rows[f"make a {kind.kind} by POST"] = self._by_post(kind, found)
        for name, repeat in rows.items():
            await self._measure(name, times, repeat)

    def _by_apply(self, kind: Kind, found: Json) -> Repeat:
        make = self._api.apply if kind == EVENTS else self._api.create
        return lambda number: make(kind, _again(kind, found, f"applied-{number}"))

    def _by_post(self, kind: Kind, found: Json) -> Repeat:
        path = self._admin.resource(f"{kind.plural}.{kind.group}".rstrip(".")).path(_NAMESPACE)
        return lambda number: self._client.create(path, _again(kind, found, f"posted-{number}"))

    async def _measure(self, name: str, times: int, repeat: Repeat) -> None:
        before, started = list(map(cpu_seconds, self._pids)), time.monotonic()
        for number in range(times):
            await repeat(number)
        seconds = time.monotonic() - started
        await asyncio.sleep(_AT_REST_SECONDS)
        spent = [cpu_seconds(pid) - cpu for pid, cpu in zip(self._pids, before, strict=True)]
        self.table.add_row(name, *(f"{each / times * 1e3:.1f}" for each in (seconds, *spent)))


def _again(kind: Kind, found: Json, name: str) -> Json:
    """The same under another name, without what the API server has put in."""
    metadata = {
        key: found["metadata"][key] for key in ("labels", "annotations") if key in found["metadata"]
    }
    rest = {
        key: value
        for key, value in found.items()
        if key not in ("metadata", "status") and not key.startswith("deprecated")
    }
    if kind == SERVICES:
        rest["spec"] = {
            key: value for key, value in rest["spec"].items() if not key.startswith("clusterIP")
        }
    identity = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**rest, **identity, "metadata": {**metadata, "name": name, "namespace": _NAMESPACE}}


def _status(found: Json, number: int) -> Json:
    return {
        "apiVersion": INFERENCE_DEPLOYMENTS.api_version,
        "kind": INFERENCE_DEPLOYMENTS.kind,
        "metadata": {"name": _NAME, "namespace": _NAMESPACE},
        "status": {**found["status"], "observedGeneration": number},
    }


@contextmanager
def _served() -> Iterator[tuple[Stack, Admin]]:
    """A control plane in which an operator has served one object and has ended."""
    with own_control_plane("requests", [_NAMESPACE]) as (stack, admin, root):
        apply_fleet(stack.access, {"groups": [_GROUP]})
        with closing(OperatorProcess(stack, root / "operator")) as operator:
            operator.start()
            body = inference(_NAME, _MODEL, max_model_len=8192, replicas=0)
            path = admin.resource("inferencedeployments").path(_NAMESPACE)
            admin.rest.request("POST", path, body)
            admin.wait_items("services", bool, _NAMESPACE)
            admin.wait_for("infd", _NAME, _is_told, _NAMESPACE)
            admin.wait_items("events.events.k8s.io", bool, _NAMESPACE)
            operator.stop()
        yield stack, admin


def _is_told(found: Json) -> bool:
    return bool((found.get("status") or {}).get("placements"))


async def _run(stack: Stack, admin: Admin, times: int) -> Table:
    async with connect(str(stack.kubeconfig), None) as connection, open_client(stack.access) as one:
        transport = Transport(connection.client, lambda *_: None)
        bucket = TokenBucket(inf, times)
        api = AioKubeApi(transport, before_write=lambda: inf, bucket=bucket)
        bench = Bench(stack, admin, api, one)
        await bench.run(times)
        return bench.table


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scale.request_cost",
        description="Time and CPU of each request of the operator, one after the other.",
    )
    parser.add_argument("--times", type=int, default=150, help="of each request (150)")
    arguments = parser.parse_args()
    with _served() as (stack, admin):
        table = asyncio.run(_run(stack, admin, arguments.times))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
