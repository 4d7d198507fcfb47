"""What each kind of request that the operator sends costs an idle API server.

    python -m benchmarks.cluster.request_cost --times 150

A real operator serves one object and ends. The benchmark then creates copies of what the operator
has made, one request after the other. Next to the time stands the CPU of the API server, of etcd
and of the controller manager, which makes a ReplicaSet of each Deployment and an EndpointSlice of
each Service. No controller can be faster than the request that creates its child.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.cluster.api_client import ApiClient, open_client
from benchmarks.cluster.bench_cluster import bench_cluster
from benchmarks.cluster.usage import CpuMeter
from benchmarks.pages.figures import ResultTable
from benchmarks.pages.tables import open_console, print_table
from e2e.harness.admin import Admin
from e2e.harness.failure import run_cli
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.models import inference
from e2e.nodes.fleet import apply_fleet
from tonnage.api.names import LABEL_OWNER

_NAMESPACE, _NAME = "scale-requests", "served"
_GROUP: Final = {"name": "pool", "accelerator": "mi300x", "count": 2}
_MODEL: Final = "llama-3.1-8b"
_SETTLE_SECONDS: Final = 1.0
"""The controllers have done by then what follows from the last requests."""

_PROCESSES: Final = ("kube-apiserver", "etcd", "kube-controller-manager")
_KINDS: Final = {
    "Deployment": ("deployments", "apps/v1"),
    "Service": ("services", "v1"),
    "Event": ("events", "events.k8s.io/v1"),
}

Send = Callable[[int], Awaitable[object]]
"""Sends one request; the number makes its object another one."""


@dataclass(frozen=True, slots=True)
class RequestBench:
    """Repeats the operator's requests for what it has made of one object."""

    admin: Admin
    client: ApiClient
    pids: dict[str, int]

    async def measure(self, times: int) -> ResultTable:
        """Each request, so many times."""
        rows = []
        for name, send in self._requests():
            meter, started = CpuMeter(self.pids), time.monotonic()
            for number in range(times):
                await send(number)
            seconds = time.monotonic() - started
            await asyncio.sleep(_SETTLE_SECONDS)
            spent = [seconds, *meter.read().by_process.values()]
            rows.append((name, *(f"{one / times * 1e3:.1f}" for one in spent)))
        columns = ("request", "time ms", *(f"CPU ms of {name}" for name in self.pids))
        return ResultTable(f"one request at a time, {times} of each", columns, rows)

    def _requests(self) -> Iterator[tuple[str, Send]]:
        client, owned = self.client, f"{LABEL_OWNER}={_NAME}"
        served = self.admin.get("infd", _NAME, _NAMESPACE) or {}
        path = self.admin.resource("infd").path(_NAMESPACE, _NAME)
        deployments = self.admin.resource("deployments", "apps/v1").path(_NAMESPACE)
        yield "read the object", lambda _: client.get(path)
        yield "list its Deployments", lambda _: client.get(deployments, {"labelSelector": owned})
        yield (
            "apply its status",
            lambda number: client.apply(f"{path}/status", _status(served, number)),
        )
        yield (
            "merge-patch its status",
            lambda number: client.merge_patch(f"{path}/status", _status(served, -number)),
        )
        for kind, (plural, group_version) in _KINDS.items():
            original = self._made(plural, group_version)
            collection = self.admin.resource(plural, group_version).path(_NAMESPACE)
            yield f"create a {kind} by apply", partial(self._apply, collection, original)
            yield f"create a {kind} by POST", partial(self._post, collection, original)

    def _made(self, plural: str, group_version: str) -> Json:
        """The first object of a kind that the operator has made."""
        resource = self.admin.resource(plural, group_version)
        items = self.admin.rest.request("GET", resource.path(_NAMESPACE))["items"]
        return {"apiVersion": group_version, "kind": resource.kind, **items[0]}

    async def _apply(self, collection: str, original: Json, number: int) -> None:
        name = f"applied-{number}"
        await self.client.apply(f"{collection}/{name}", copy_of(original, name))

    async def _post(self, collection: str, original: Json, number: int) -> None:
        await self.client.create(collection, copy_of(original, f"posted-{number}"))


def copy_of(original: Json, name: str) -> Json:
    """The object under another name, without the fields that the API server has set."""
    metadata: Json = {"name": name, "namespace": original["metadata"]["namespace"]}
    for key in ("labels", "annotations"):
        if key in original["metadata"]:
            metadata[key] = original["metadata"][key]
    content = {
        key: value
        for key, value in original.items()
        if key not in ("metadata", "status") and not key.startswith("deprecated")
    }
    if original["kind"] == "Service":
        content["spec"] = {
            key: value for key, value in content["spec"].items() if not key.startswith("clusterIP")
        }
    return {**content, "metadata": metadata}


def _status(served: Json, number: int) -> Json:
    """The object's status, another one for each number."""
    return {
        "apiVersion": served["apiVersion"],
        "kind": served["kind"],
        "metadata": {"name": _NAME, "namespace": _NAMESPACE},
        "status": {**served["status"], "observedGeneration": number},
    }


@contextmanager
def _served() -> Iterator[tuple[Stack, Admin]]:
    """A control plane in which an operator has served one object and has ended."""
    with bench_cluster("requests", [_NAMESPACE]) as (stack, admin, root):
        apply_fleet(stack.access, {"groups": [_GROUP]})
        with closing(OperatorProcess(stack, root / "operator")) as operator:
            operator.start()
            body = inference(_NAME, _MODEL, max_model_len=8192, replicas=0)
            path = admin.resource("inferencedeployments").path(_NAMESPACE)
            admin.rest.request("POST", path, body)
            admin.wait_items("services", bool, _NAMESPACE)
            admin.wait_for("infd", _NAME, _has_placements, _NAMESPACE)
            admin.wait_items("events.events.k8s.io", bool, _NAMESPACE)
            operator.stop()
        yield stack, admin


def _has_placements(served: Json) -> bool:
    return bool((served.get("status") or {}).get("placements"))


async def _run(stack: Stack, admin: Admin, times: int) -> ResultTable:
    pids = {name: stack.processes[name].pid for name in _PROCESSES}
    async with open_client(stack.access) as client:
        return await RequestBench(admin, client, pids).measure(times)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.request_cost",
        description="Time and CPU of each request of the operator, one after the other.",
    )
    parser.add_argument("--times", type=int, default=150, help="of each request (150)")
    arguments = parser.parse_args()
    with _served() as (stack, admin):
        table = asyncio.run(_run(stack, admin, arguments.times))
    print_table(open_console(), table)
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
