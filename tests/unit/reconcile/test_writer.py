"""The answer to each of the operator's writes is in the stores before the write returns."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import ConflictError, Kind, Object
from tonnage.reconcile.execute import Writer
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import read_child


def deployment(**metadata: object) -> Object:
    named = {"name": "llama", "namespace": "chat", **metadata}
    return {"metadata": named, "spec": {"replicas": 1}}


class Bench:
    """A writer, its API server, and stores without a watch."""

    def __init__(self) -> None:
        self.api, self.stores = FakeApi(), Stores()
        self.writer = Writer(self.api, self.stores)

    def is_known(self, kind: Kind) -> bool:
        """Whether the store has what the API server has."""
        return list(self.stores.objects(kind)) == self.api.objects(kind)

    async def scale(self) -> None:
        child = read_child(self.api.put(DEPLOYMENTS, deployment()))
        await self.writer.scale(DEPLOYMENTS, child, 3)

    async def delete(self, **metadata: object) -> None:
        await self.writer.create(DEPLOYMENTS, deployment(**metadata))
        (live,) = self.api.objects(DEPLOYMENTS)
        await self.writer.delete(DEPLOYMENTS, read_child(live))

    async def apply_status(self) -> None:
        self.api.put(INFERENCE_DEPLOYMENTS, deployment())
        status = {"metadata": deployment()["metadata"], "status": {"observedGeneration": 1}}
        await self.writer.apply_status(INFERENCE_DEPLOYMENTS, status)


WRITES: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "apply": lambda bench: bench.writer.apply(DEPLOYMENTS, deployment()),
    "create": lambda bench: bench.writer.create(DEPLOYMENTS, deployment()),
    "scale": lambda bench: bench.scale(),
    "delete": lambda bench: bench.delete(),
    "delete of what a finalizer keeps": lambda bench: bench.delete(finalizers=["a/b"]),
    "status": lambda bench: bench.apply_status(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_the_store_has_the_answer_to_each_own_write(
    write: Callable[[Bench], Awaitable[None]],
) -> None:
    bench = Bench()
    await write(bench)
    assert bench.is_known(DEPLOYMENTS)
    assert bench.is_known(INFERENCE_DEPLOYMENTS)


async def test_a_failed_write_changes_no_store() -> None:
    bench = Bench()
    bench.api.fail_next("apply", ConflictError("409"))
    with pytest.raises(ConflictError):
        await bench.writer.apply(DEPLOYMENTS, deployment())
    assert len(bench.stores.store_for(DEPLOYMENTS)) == 0


async def test_a_reconcile_sees_the_writes_of_the_one_before_it_without_any_event() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.watch()
    await cluster.reconciler.reconcile(Key("chat", "llama"))
    written = [call.kind for call in cluster.api.effective_writes()]
    assert {DEPLOYMENTS, SERVICES, INFERENCE_DEPLOYMENTS} <= set(written)
    before = cluster.api.write_count
    await cluster.reconciler.reconcile(Key("chat", "llama"))
    assert cluster.api.write_count == before


async def test_a_reconcile_of_a_converged_object_asks_the_api_server_for_nothing() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    before = cluster.api.call_count
    await cluster.reconcile("llama")
    assert cluster.api.call_count == before
