"""The API server of a busy cluster, as far as watches need one: lists, and events at a rate.

    python -m tests.support.api_server.busy_api_server --nodes 2000 --pods 8000 --objects 500

It prints its address. `POST /play` with {"seconds": 10, "rates": {"nodes": 1000}} lets so many
events a second come, and answers with their number once all were sent; a rate of 0 is as fast as
they are taken in. It is a process of its own, so that its work counts for no other process.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from tests.support.api_server import cluster_bytes

TICK_SECONDS: Final = 0.01
UNHURRIED: Final = 500
"""Events written at once where they come as fast as they are taken in."""

_FIRST_VERSION: Final = 1_000_000
"""In every object that `cluster_bytes` makes; its digits give way to a newer one."""


@dataclass(slots=True)
class Collection:
    """The objects of a kind, of which each event shows the next one."""

    kind: str
    api_version: str
    count: int
    make: Callable[[int, int], dict[str, Any]]
    streams: list[web.StreamResponse] = field(default_factory=list)

    def page(self, first: int, limit: int) -> dict[str, Any]:
        """Objects of a list from the `first` on."""
        last = min(first + limit, self.count)
        token = {} if last == self.count else {"continue": str(last)}
        return {
            "kind": f"{self.kind}List",
            "apiVersion": self.api_version,
            "metadata": {"resourceVersion": str(_FIRST_VERSION), **token},
            "items": [self.make(number, 0) for number in range(first, last)],
        }

    def events(self, versions: Iterator[int]) -> Iterator[bytes]:
        """Changes of one object after the other; what they look like is worked out before."""
        known = [
            json.dumps({"type": "MODIFIED", "object": self.make(number, beat)}).encode()
            for number in range(min(self.count, 500))
            for beat in (1, 2)
        ]

        def newer(line: bytes) -> bytes:
            head, _, rest = line.partition(b'"resourceVersion": "')
            version = b'"resourceVersion": "%d"' % next(versions)
            return head + version + rest[rest.index(b'"') + 1 :] + b"\n"

        return map(newer, itertools.cycle(known[::2] + known[1::2]))


class BusyApiServer:
    """Answers reads of these collections; of all else it has nothing, and takes every write."""

    def __init__(self, nodes: int, pods: int, objects: int) -> None:
        def a_pod(number: int, beat: int) -> dict[str, Any]:
            owner = number % (4 * objects) if objects else 0
            name = cluster_bytes.object_name(owner) if owner < objects else None
            return cluster_bytes.pod(number, beat, owner=name)

        make = cluster_bytes
        self._collections = {
            "nodes": Collection("Node", "v1", nodes, make.node),
            "pods": Collection("Pod", "v1", pods, a_pod),
            "deployments": Collection("Deployment", "apps/v1", objects, make.deployment),
            "inferencedeployments": Collection(
                "InferenceDeployment", "tonnage.dev/v1alpha1", objects, make.inference_deployment
            ),
            "services": Collection("Service", "v1", 0, make.deployment),
            "acceleratorpools": Collection("AcceleratorPool", "tonnage.dev/v1alpha1", 0, make.node),
            # kopf begins nothing where these are not to be found.
            "namespaces": Collection("Namespace", "v1", 0, make.node),
            "customresourcedefinitions": Collection(
                "CustomResourceDefinition", "apiextensions.k8s.io/v1", 0, make.node
            ),
        }
        self._versions = itertools.count(_FIRST_VERSION + 1)
        self._events = {
            plural: each.events(self._versions)
            for plural, each in self._collections.items()
            if each.count
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Any request."""
        if request.path == "/play":
            return web.json_response(await self._play(await request.json()))
        collection = self._collections.get(request.path.rpartition("/")[2])
        if collection is None and "/api" in request.path and request.method == "GET":
            return await self._other(request)
        if collection is None or request.method != "GET":
            return web.json_response(await request.json())
        if "watch" in request.query:
            return await self._watch(request, collection)
        limit = int(request.query.get("limit", 10**9))
        return web.json_response(collection.page(int(request.query.get("continue", 0)), limit))

    async def _other(self, request: web.BaseRequest) -> web.Response:
        """Discovery for kopf; and of what it does not have, that."""
        parts = request.path.strip("/").split("/")
        if len(parts) == 1:
            return web.json_response(self._groups())
        if len(parts) in (2, 3):
            return web.json_response(
                {"resources": [_resource(*each) for each in self._served(parts)]}
            )
        name = {"name": parts[-1]}
        status = {"kind": "Status", "code": 404, "message": "not found", "details": name}
        return web.json_response(status, status=404)

    def _groups(self) -> dict[str, Any]:
        versions = sorted({each.api_version for each in self._collections.values()} - {"v1"})
        named = [each.partition("/")[::2] for each in versions]
        groups = [
            {"name": name, "versions": [{"version": of}], "preferredVersion": {"version": of}}
            for name, of in named
        ]
        return {"versions": ["v1"], "groups": groups}

    def _served(self, parts: list[str]) -> list[tuple[str, str]]:
        version = "/".join(parts[1:])
        return [
            (plural, each.kind)
            for plural, each in self._collections.items()
            if each.api_version == version
        ]

    async def _watch(self, request: web.BaseRequest, collection: Collection) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        metadata = {"resourceVersion": str(next(self._versions))}
        bookmark = {"type": "BOOKMARK", "object": {"kind": collection.kind, "metadata": metadata}}
        await stream.write(json.dumps(bookmark).encode() + b"\n")
        collection.streams.append(stream)
        try:
            await asyncio.sleep(float(request.query.get("timeoutSeconds", 300)))
        finally:
            collection.streams.remove(stream)
        return stream

    async def _play(self, asked: dict[str, Any]) -> dict[str, int]:
        seconds, rates = asked["seconds"], asked["rates"]
        playing = (self._tell(plural, rate, seconds) for plural, rate in rates.items())
        return dict(zip(rates, await asyncio.gather(*playing), strict=True))

    async def _tell(self, plural: str, rate: float, seconds: float) -> int:
        """Write what is due, as far as it is taken in; how many that were."""
        events, (stream,) = self._events[plural], self._collections[plural].streams
        begun, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < seconds:
            due = int(min(passed + TICK_SECONDS, seconds) * rate) - sent if rate else UNHURRIED
            if due > 0:
                await stream.write(b"".join(itertools.islice(events, due)))
                sent += due
            await asyncio.sleep(TICK_SECONDS if rate else 0)
        return sent


def _resource(plural: str, kind: str) -> dict[str, Any]:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": plural in ("pods", "deployments", "services", "inferencedeployments"),
        "verbs": ["get", "list", "watch", "patch"],
    }


async def serve(server: BusyApiServer) -> None:
    """Until it is ended."""
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)  # noqa: T201 - the parent process reads this
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("nodes", "pods", "objects"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asyncio.run(serve(BusyApiServer(**vars(parser.parse_args()))))
