"""The operator's process in front of an API server in memory, in virtual time.

Everything between the watch and the API server is the code that runs in a cluster: stores, lists,
triggers, queue, workers, lease, resync. Only the watches, HTTP and the clock are stood in for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Final, Self
from unittest.mock import patch

from kubernetes.aio.client import ApiClient, Configuration

from tests.support.api_server.fake_api import FakeApi
from tests.support.api_server.forwarding import Forwarding
from tests.support.api_server.late_reads import LateReads
from tests.support.api_server.late_watch import LateWatch
from tests.support.faults.fake_clock import FakeClock
from tests.support.in_memory.cluster import Cluster, Hub
from tests.support.in_memory.controllers import Behaviour
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.lookup import AdapterAnswer, ModelAnswer
from tonnage.controller.queueing.workqueue import WorkQueue
from tonnage.controller.settings import Settings
from tonnage.controller.workers import Controller
from tonnage.informers.reflector import Reflector
from tonnage.kube.connection import Connection
from tonnage.kube.kinds import EVENTS, LEASES
from tonnage.kube.lease import Clock, LeaderElector, LeaseTiming
from tonnage.kube.protocol import Kind, Labels, NotFoundError, Object, ObjectParts, Selection
from tonnage.kube.throttle import TokenBucket
from tonnage.manager import components, loop
from tonnage.manager.components import Components
from tonnage.manager.process import Operator
from tonnage.manager.scope import WATCHED_BY_KOPF, Scope

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_EPOCH_SECONDS: Final = 1000.0

CALM_SECONDS: Final = 10.0
"""Nothing has changed for so long: what goes on by itself has come to its end."""
_RESTLESS_SECONDS: Final = 600.0

_STEP_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 600.0
"""Controllers take a step soon after a change, and now and then, since deadlines pass, too."""

SELDOM: Final = LeaseTiming(
    lease_seconds=1500.0, renew_deadline_seconds=1000.0, retry_seconds=200.0
)
"""A lease for tests of something else, which need not see it renewed a thousand times."""


class LoopClock(FakeClock):
    """The time of the running event loop."""

    def __init__(self) -> None:
        """Nothing is kept."""

    @property
    def seconds(self) -> float:  # type: ignore[override] # read only: the loop alone advances it
        return asyncio.get_running_loop().time()

    @property
    def wall(self) -> datetime:  # type: ignore[override] # read only, too
        return _EPOCH + timedelta(seconds=self.seconds - _EPOCH_SECONDS)


class Wakefulness:
    """Whether a process goes on, or stands still as one does whose machine is overloaded: what it
    asked for comes to it when it wakes, as if no time had passed."""

    def __init__(self) -> None:
        self._awake = asyncio.Event()
        self._awake.set()
        self.waiting = 0

    def sleep(self) -> None:
        """Stand still at the next answer."""
        self._awake.clear()

    def wake(self) -> None:
        """Go on."""
        self._awake.set()

    async def needed(self) -> None:
        """Until it is awake."""
        self.waiting += 1
        await self._awake.wait()
        self.waiting -= 1


class Line(Forwarding):
    """The line of one operator to the API server; the gate is asked right before each write, as by
    the real client."""

    def __init__(
        self, reads: LateReads, may_write: Callable[[], None], wakefulness: Wakefulness
    ) -> None:
        super().__init__(reads)
        self._may_write = may_write
        self._wakefulness = wakefulness

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        body = await self._behind.get(kind, namespace, name)
        await self._wakefulness.needed()
        return body

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Labels | None = None,
    ) -> list[Object]:
        bodies = await self._behind.list(kind, namespace, labels)
        await self._wakefulness.needed()
        return bodies

    async def list_first(
        self, selection: Selection, parts: ObjectParts, limit: int
    ) -> Sequence[Object]:
        bodies = await self._behind.list_first(selection, parts, limit)
        await self._wakefulness.needed()
        return bodies

    async def list_pages(
        self, selection: Selection, parts: ObjectParts, take: Callable[[Object], object]
    ) -> str:
        version = await self._behind.list_pages(selection, parts, take)
        await self._wakefulness.needed()
        return version

    async def apply(self, kind: Kind, body: Object) -> Object:
        await self._wakefulness.needed()
        self._may_write()
        return await self._behind.apply(kind, body)

    async def create(self, kind: Kind, body: Object) -> Object:
        await self._wakefulness.needed()
        self._may_write()
        return await self._behind.create(kind, body)

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        await self._wakefulness.needed()
        self._may_write()
        return await self._behind.apply_status(kind, body)

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> Object | None:
        await self._wakefulness.needed()
        self._may_write()
        return await self._behind.delete(kind, namespace, name, uid, resource_version)

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> Object:
        await self._wakefulness.needed()
        self._may_write()
        return await self._behind.scale(kind, seen, replicas)


class LeaseLine:
    """The same, for the lease: a process that sleeps does not renew it."""

    def __init__(self, api: FakeApi, wakefulness: Wakefulness) -> None:
        self._api = api
        self._wakefulness = wakefulness

    async def get_lease(self, namespace: str, name: str) -> Object:
        lease = await self._api.get_lease(namespace, name)
        await self._wakefulness.needed()
        return lease

    async def put_lease(self, lease: Object) -> Object:
        kept = await self._api.put_lease(lease)
        await self._wakefulness.needed()
        return kept


class _ListingReflector(Reflector):
    """Lists, and leaves the events of all kinds to the LateWatch."""

    async def run(self) -> None:
        """Watch nothing."""


class _NoCorrections:
    """The ConfigMap of corrections is not there, and these tests record no correction."""

    async def read(self) -> Object:
        raise NotFoundError("no such ConfigMap")


class _KnownHub:
    """What the process knows of a Hub that a test answers for, without the cache's time."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def lookup(
        self, source: HuggingFaceSource, token: str | None, *, wake: object, namespace: str
    ) -> ModelAnswer:
        """The model."""
        return self._hub.lookup(source, token, wake)

    def lookup_adapter(
        self, source: HuggingFaceSource, token: str | None, *, wake: object, namespace: str
    ) -> AdapterAnswer:
        """The adapter."""
        return self._hub.lookup_adapter(source)


class Replica:
    """One process of the operator, and what it hears."""

    def __init__(self, api: FakeApi, identity: str, timing: LeaseTiming, hub: Hub) -> None:
        self.wakefulness = Wakefulness()
        self.reads = LateReads(api)
        with patch.object(loop, "HubModelCache", lambda *_: _KnownHub(hub)):
            components = _assemble(api, self.reads, identity, timing, self.wakefulness)
        self._operator = Operator(components)
        self._reflectors = components.informers.by_watch
        self._lists: set[asyncio.Task[None]] = set()
        self.watch = LateWatch(api, self._operator.observe, self._restart)

    async def start(self) -> None:
        """Compete, and work once it leads."""
        await self._operator.start()
        self.watch.begin()

    async def stop(self) -> None:
        """As after SIGTERM."""
        self.watch.end()
        for task in self._lists:
            task.cancel()
        await self._operator.stop()

    def _restart(self, kind: Kind) -> None:
        """What a watch does before it starts: kopf reports that it has listed, and the operator's
        own reflectors list into their stores."""
        if kind in WATCHED_BY_KOPF:
            self._operator.listed(kind.plural)
        for reflector in self._reflectors:
            if reflector.selection.kind == kind:
                task = asyncio.create_task(reflector.list())
                self._lists.add(task)
                task.add_done_callback(self._lists.discard)


class LiveCluster(Cluster):
    """A Cluster whose operator is its process. It lives in the running event loop, from `lead` on;
    `api` is what is stored before."""

    def __init__(self, api: FakeApi, behaviours: Mapping[str, Behaviour], hub: Hub) -> None:
        super().__init__()
        self.api, self.clock, self.hub = api, LoopClock(), hub
        self.behaviours.update(behaviours)
        self.replicas: list[Replica] = []
        self._stirred = asyncio.Event()
        self._changed_at = self.clock.seconds

    @classmethod
    @asynccontextmanager
    async def led(
        cls,
        api: FakeApi,
        behaviours: Mapping[str, Behaviour],
        timing: LeaseTiming = SELDOM,
        hub: Hub | None = None,
    ) -> AsyncIterator[Self]:
        """One replica leads, and all has come to rest."""
        cluster = cls(api, behaviours, hub or Hub())
        api.listeners.append(cluster._note)
        controllers = asyncio.create_task(cluster._run_controllers())
        try:
            await cluster.start_replica(timing)
            await cluster.settle()
            yield cluster
        finally:
            controllers.cancel()
            for replica in cluster.replicas:
                await replica.stop()

    async def start_replica(self, timing: LeaseTiming) -> Replica:
        """One more process."""
        replica = Replica(self.api, f"operator-{len(self.replicas)}", timing, self.hub)
        self.replicas.append(replica)
        await replica.start()
        return replica

    def start_operator(self) -> None:
        """Its replicas are started one by one."""
        self._due = {}

    def watch(self) -> None:
        """Their own watches tell them."""
        self.api.now = self.clock.now()

    def look_at_all(self) -> None:
        """Apply a pool and deliver the event of its watch."""

    async def settle(self, order: Iterable[str] | None = None) -> None:
        """Until nothing has changed for a while."""
        began = self.clock.seconds
        while self.clock.seconds - self._changed_at < CALM_SECONDS:
            assert self.clock.seconds - began < _RESTLESS_SECONDS, "something changes on and on"
            await asyncio.sleep(_STEP_SECONDS)  # what is left of the time may be too short to pass

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.settle()

    def _note(self, kind: Kind, event_type: str, body: Object) -> None:
        if kind not in (LEASES, EVENTS):
            self._changed_at = self.clock.seconds
            self._stirred.set()

    async def _run_controllers(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), _IDLE_SECONDS)
            self._stirred.clear()
            await asyncio.sleep(_STEP_SECONDS)
            self.step()


def _ticking(time: Callable[[], float]) -> Callable[[], float]:
    """A clock on which each look takes a nanosecond, as on a real one: else who waits for what is
    due in less than the loop's resolution would look again for ever."""
    looks = count()
    return lambda: time() + next(looks) * 1e-9


def _assemble(
    api: FakeApi, reads: LateReads, identity: str, timing: LeaseTiming, wakefulness: Wakefulness
) -> Components:
    """All components as in a cluster, but for HTTP, and with the time of the event loop."""
    clock, now = _ticking(asyncio.get_running_loop().time), LoopClock().now
    settings, no_connection = Settings(), Connection(ApiClient(Configuration()))
    with ExitStack() as stack:
        for name, substitute in {
            "AioKubeApi": lambda _, *, before_write, **__: Line(reads, before_write, wakefulness),
            "AioLeaseApi": lambda _: LeaseLine(api, wakefulness),
            "ConfigMapEntries": lambda *_: _NoCorrections(),
            "WorkQueue": partial(WorkQueue, clock=clock),
            "Controller": partial(Controller, clock=clock),
            "TokenBucket": partial(TokenBucket, clock=clock),
            "LeaderElector": partial(LeaderElector, timing=timing, clock=Clock(clock, now)),
            "process_identity": lambda: identity,
            "Reflector": _ListingReflector,
        }.items():
            stack.enter_context(patch.object(components, name, substitute))
        for module in (loop, components):
            stack.enter_context(patch.object(module, "_now", now))
        stack.enter_context(patch.object(components, "_clock", clock))
        return components.assemble(
            settings, no_connection, loop.build_loop, Scope(compute_domains=True)
        )
