"""The life of the process: connect, wait for our kinds, watch, lead, stop in order.

kopf runs inside of it. Whatever ends kopf ends the process, and only an end that was asked for
has exit code 0: a restart is the cure for everything else.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import kopf

from tonnage import delays
from tonnage.informers.resync import verify_all
from tonnage.kube.connection import ConnectionConfigError, connect
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.runtime.background import Background
from tonnage.runtime.controller import drain
from tonnage.runtime.fleet_file_metric import tell_fleet_file
from tonnage.runtime.garbage import never_search_what_is_there
from tonnage.runtime.periodic import repeat
from tonnage.runtime.priority import Priority
from tonnage.runtime.server import build_app, serve
from tonnage.runtime.settings import Settings
from tonnage.watch.application import build_registry, build_settings
from tonnage.watch.components import Components, assemble
from tonnage.watch.fleet_file import FleetFile, ReadFleetFile
from tonnage.watch.scope import Scope, labels_of, scope_of
from tonnage.watch.session import open_session
from tonnage.watch.start_up import find_kinds, until_it_works
from tonnage.watch.work import BuildWork

_log = logging.getLogger(__name__)

_KINDS: Final = "the kinds of tonnage.dev"
_FLEET: Final = "nodes, pods and pools"


BuildForScope = Callable[[Scope], BuildWork]
"""How the work is built for what is served."""


class LeaseLostError(Exception):
    """Another replica leads, or could: only a new process may compete again."""


class WatchStuckError(Exception):
    """kopf was to end, and has not: only the end of the process ends it."""


async def run_operator(
    settings: Settings, build_work: BuildForScope, read_fleet_file: ReadFleetFile
) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code, 0 only for an end that was asked for."""
    _log.info("starting", extra={"settings": settings.to_dict()})
    scope = scope_of(settings, read_fleet_file)
    try:
        async with connect(settings.kubeconfig, settings.context) as connection:
            return await Operator(assemble(settings, connection, build_work(scope), scope)).run()
    except ConnectionConfigError as error:
        _log.error("not started: %s", error)
        return 1


class Operator:
    """One replica; runs once."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._background = Background(on_failure=self._end)
        self._open = AsyncExitStack()
        self._end_wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._stopped = asyncio.Event()
        self._synced = asyncio.Event()
        self._listed_by_kopf: set[str] = set()
        self._working: asyncio.Task[None] | None = None
        self._was_asked = False

    async def run(self) -> int:
        """Live; returns the exit code."""
        components = self._components
        settings, health = components.settings, components.health
        self._take_signals()
        health.wait_for(_KINDS)
        health.wait_for(_FLEET)
        try:
            self._background.start("event loop lag", health.measure_lag())
            app = build_app(health, components.metrics.registry)
            host, port = settings.listen_host, settings.listen_port
            await self._open.enter_async_context(serve(app, host, port))
            await self._wait_for_kinds()
            if not self._end_wanted.is_set():
                await self._run_until_end()
        except Exception:  # noqa: BLE001 - whatever ended the watch ends the process, and is logged
            _log.exception("watching failed")
            return 1
        finally:
            await self.stop()
        _log.info("stopped", extra={"asked": self._was_asked})
        return 0 if self._was_asked and self._background.failure is None else 1

    async def start(self) -> None:
        """Begin to fill the stores and to compete for the lease."""
        self._log_scope()
        self._background.start("signals", self._take_signals_back())
        self._background.start("events", self._components.kube.outbox.deliver())
        self._background.start("stores", self._keep_stores())
        self._background.start("leadership", self._lead())

    async def stop(self) -> None:
        """Finish running reconciles, release the lease, and be silent. Can be called again."""
        loop, kube = self._components.loop, self._components.kube
        loop.queue.close()
        if self._working is not None:
            seconds = self._components.settings.drain_seconds
            in_time = await drain(self._working, loop.queue, seconds)
            self._working = None
            _log.info("drained", extra={"in_time": in_time})
            await kube.outbox.empty(delays.END_EVENTS)
        await self._background.stop()
        await kube.elector.release()
        await self._open.aclose()
        self._stopped.set()

    def observe(self, kind: Kind, event_type: str | None, obj: Object) -> None:
        """Take in an event of a kind that kopf watches."""
        self._components.metrics.api.event_seen(kind.plural)
        self._components.informers.stores.of(kind).observe(event_type, obj)

    def listed(self, plural: str) -> None:
        """kopf has listed a kind: its watch begins, or was restarted. kopf reports no object that
        was deleted meanwhile, so the stores are compared with a list."""
        self._listed_by_kopf.add(plural)
        self._components.signals.listed.set()

    async def _run_until_end(self) -> None:
        watching = asyncio.create_task(self._run_kopf())
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        _, late = await asyncio.wait({watching}, timeout=delays.END_KOPF)
        if not late:
            await watching
        elif self._was_asked:
            # One that is ended while it begins tries for ever to log in again (kopf 1.45). All that
            # was to be ended in order has ended: this is no failure.
            _log.warning("kopf did not end: ending without it")
        else:
            # A watch of kopf that failed leaves others that outlive their cancellation.
            raise WatchStuckError(f"kopf did not end within {delays.END_KOPF:g} s of its watches")

    async def _run_kopf(self) -> None:
        scope = self._components.scope
        await kopf.operator(
            registry=build_registry(
                kinds=scope.watched_by_kopf,
                observe=self.observe,
                login=self._log_in,
                start=self.start,
                stop=self.stop,
            ),
            settings=build_settings(scope.shard),
            clusterwide=not scope.namespaces,
            namespaces=scope.namespaces,
            standalone=True,
            # Of no use without peering, but kopf would ask for the user's name, which a number
            # without an entry in /etc/passwd does not have.
            identity="tonnage",  # type: ignore[arg-type] # a str by another name, not exported
            stop_flag=self._end_wanted,
            ready_flag=self._ready,
        )

    async def _log_in(self) -> kopf.AiohttpSession:
        kube = self._components.kube
        credentials = await kube.connection.credentials()
        return open_session(credentials, kube.rights, self.listed)

    async def _wait_for_kinds(self) -> None:
        """A kind that is defined later than kopf starts would never be watched."""
        until = asyncio.create_task(self._end_wanted.wait())
        waiting = asyncio.create_task(self._await(_KINDS, self._find_kinds))
        await asyncio.wait({until, waiting}, return_when=asyncio.FIRST_COMPLETED)
        until.cancel()
        if waiting.done():
            await waiting
        waiting.cancel()

    async def _await(self, what: str, job: Callable[[], Awaitable[object]]) -> None:
        """Not ready, and saying why, until the job succeeds."""
        health = self._components.health
        await until_it_works(what, job, health.still_waiting)
        health.reached(what)

    async def _find_kinds(self) -> None:
        scope = self._components.scope
        await find_kinds(self._components.kube.api, scope.selections(scope.watched_by_kopf))

    # Stores

    async def _keep_stores(self) -> None:
        """Fill the stores, then keep them true, for ever."""
        components = self._components
        if (file := components.scope.fleet_file) is not None:
            tell_fleet_file(components.metrics.registry, lambda: file.problem is None)
        await self._wait_for_kopf()
        await self._await(_FLEET, self._fill_stores)
        for reflector in components.informers.by_watch:
            self._background.start(f"watch of {reflector}", reflector.run())
        if file is not None:
            self._background.start("fleet file", self._follow_file(file))
        components.metrics.syncs.fleet_listed.done()
        for reflector in components.informers.reflectors:
            components.metrics.api.changes_missed(reflector.selection.kind.plural, 0)
        self._synced.set()
        self._repeat("checking watches", self._check_watches, delays.CHECK_WATCHES)
        await repeat(
            "verifying stores",
            self._verify_stores,
            delays.VERIFY,
            wake=components.signals.listed,
            batch_seconds=delays.VERIFY_BATCH,
        )

    async def _wait_for_kopf(self) -> None:
        """A list that comes after kopf has listed misses nothing that kopf does not report."""
        listed = self._components.signals.listed
        while {
            kind.plural for kind in self._components.scope.watched_by_kopf
        } - self._listed_by_kopf:
            await listed.wait()
            listed.clear()

    async def _fill_stores(self) -> None:
        if (file := self._components.scope.fleet_file) is not None:
            await file.refresh()
            self._fill_from(file)
        for reflector in self._components.informers.reflectors:
            if not reflector.is_listed:
                await reflector.list()

    async def _verify_stores(self) -> None:
        components = self._components
        count = components.metrics.api.changes_missed
        if await verify_all(components.informers.reflectors, count):
            components.metrics.syncs.fleet_listed.done()

    async def _check_watches(self) -> None:
        """Verify the stores whose watch has told nothing of an own write."""
        reflectors = self._components.informers.reflectors
        silent = [reflector for reflector in reflectors if reflector.take_silence()]
        for reflector in silent:
            _log.warning("watch of %s is silent: comparing with a list", reflector)
        await verify_all(silent, self._components.metrics.api.changes_missed)

    async def _follow_file(self, file: FleetFile) -> None:
        async def read_again() -> None:
            if await file.refresh():
                self._fill_from(file)

        await repeat("reading the fleet file", read_again, delays.READ_FLEET_FILE)

    def _fill_from(self, file: FleetFile) -> None:
        stores, shard = self._components.informers.stores, self._components.scope.shard
        for kind in (NODES, ACCELERATOR_POOLS):
            file.fill(stores.of(kind), kind, labels_of(kind, shard))

    # Leading

    async def _lead(self) -> None:
        components, start = self._components, self._background.start
        loop, signals = components.loop, components.signals
        await components.kube.elector.acquire()
        start("lease", self._hold())
        await self._synced.wait()
        await loop.corrections.refresh()
        await self._await("reservations", loop.work.prime)
        never_search_what_is_there()
        self._working = start("workers", loop.controller.run())
        signals.changed.set()
        signals.resync.set()
        self._repeat("corrections", loop.corrections.refresh, delays.READ_CORRECTIONS)
        self._repeat(
            "resync",
            self._resync,
            delays.RESYNC,
            wake=signals.resync,
            batch_seconds=delays.RESYNC_BATCH,
        )
        self._repeat(
            "reporting the fleet",
            loop.work.on_fleet_change,
            delays.REPORT_FLEET,
            wake=signals.changed,
            batch_seconds=delays.FLEET_BATCH,
        )
        self._repeat(
            "waking who waits for GPUs",
            self._wake_waiting,
            delays.REPORT_FLEET,
            wake=signals.room,
            batch_seconds=delays.FLEET_BATCH,
        )

    def _repeat(
        self,
        name: str,
        job: Callable[[], Awaitable[None]],
        period_seconds: float,
        *,
        wake: asyncio.Event | None = None,
        batch_seconds: float = 0.0,
    ) -> None:
        repeated = repeat(name, job, period_seconds, wake=wake, batch_seconds=batch_seconds)
        self._background.start(name, repeated)

    async def _hold(self) -> None:
        await self._components.kube.elector.hold()
        raise LeaseLostError("the lease was lost")

    async def _resync(self) -> None:
        components = self._components
        informers, loop = components.informers, components.loop
        for owner in informers.resync.due({*informers.stores.owners(), *loop.fleet.known_keys()}):
            loop.queue.add(Key(*owner), Priority.RESYNC)
        components.metrics.syncs.resynced.done()

    async def _wake_waiting(self) -> None:
        for key in self._components.loop.fleet.waiting_keys():
            self._components.loop.queue.add(key)

    # The process

    def _log_scope(self) -> None:
        scope = self._components.scope
        if scope.namespaces:
            _log.info(
                "GPUs that pods of other namespaces hold are not known: where they are taken,"
                " replicas wait for the scheduler",
                extra={"namespaces": list(scope.namespaces)},
            )

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end_as_asked)

    async def _take_signals_back(self) -> None:
        """kopf takes the signals before it says that it is ready; it would not pass them on."""
        await self._ready.wait()
        self._take_signals()

    def _end_as_asked(self) -> None:
        self._was_asked = True
        self._end()

    def _end(self) -> None:
        self._components.loop.queue.close()
        self._end_wanted.set()
