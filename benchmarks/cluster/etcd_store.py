"""Objects written into etcd as an API server keeps them, past the API server.

Tens of thousands of nodes and pods are stored in seconds that way, and a small machine need not
admit, validate and default what a benchmark has made itself. The API server reads JSON as well as
its own encoding, and learns of new keys from its watch of etcd.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

import aiohttp

from e2e.harness.failure import HarnessError
from e2e.harness.rest import Json
from e2e.harness.stack import Stack

_FOLDERS: Final = {
    "Node": "minions",
    "Pod": "pods",
    "Deployment": "deployments",
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "DeviceClass": "deviceclasses",
}
"""Below /registry (pkg/registry/core/node/storage: nodes are kept under their old name)."""

_IN_ONE_TRANSACTION: Final = 48
"""Objects; etcd takes 1.5 MiB at once (--max-request-bytes)."""

_AT_ONCE: Final = 4


class EtcdStore:
    """The etcd of one stack, by its JSON gateway."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address

    async def put(self, objects: Iterable[Json]) -> None:
        """Write these objects, in place of those of the same names. Raises HarnessError."""
        batches = _batches(objects)
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._put_all(batches))

    async def _put_all(self, batches: Iterator[list[Json]]) -> None:
        for batch in batches:
            puts = [{"requestPut": {"key": _key(one), "value": _value(one)}} for one in batch]
            url = f"{self._address}/v3/kv/txn"
            async with self._session.post(url, json={"success": puts}) as answer:
                if answer.status != 200:
                    raise HarnessError(f"POST {url}: {answer.status} {await answer.text()}")
                await answer.read()


@asynccontextmanager
async def open_etcd(stack: Stack) -> AsyncIterator[EtcdStore]:
    """The etcd of a stack."""
    async with aiohttp.ClientSession() as session:
        yield EtcdStore(session, f"http://127.0.0.1:{stack.state['ports']['etcd']}")


def _batches(objects: Iterable[Json]) -> Iterator[list[Json]]:
    remaining = iter(objects)
    while batch := list(islice(remaining, _IN_ONE_TRANSACTION)):
        yield batch


def _key(body: Json) -> str:
    metadata = body["metadata"]
    parts = ["", "registry", _FOLDERS[body["kind"]], metadata.get("namespace"), metadata["name"]]
    return _encode("/".join(part for part in parts if part is not None))


def _value(body: Json) -> str:
    metadata = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    return _encode(json.dumps({**body, "metadata": metadata}))


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
