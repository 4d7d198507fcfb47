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

from tonnage.kube.connection import ConnectionConfigError, connect
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.reconcile.listed import OURS
from tonnage.runtime.background import Background
from tonnage.runtime.controller import drain
from tonnage.runtime.correction_store import LOOK_SECONDS
from tonnage.runtime.fleet_file_metric import tell_fleet_file
from tonnage.runtime.garbage import never_search_what_is_there
from tonnage.runtime.periodic import repeat
from tonnage.runtime.server import build_app, serve
from tonnage.runtime.settings import Settings
from tonnage.watch.application import build_registry, build_settings
from tonnage.watch.fleet_file import FleetFile, ReadFleetFile
from tonnage.watch.lists import relist_fleet, resync
from tonnage.watch.parts import Parts, assemble
from tonnage.watch.scope import scope_of
from tonnage.watch.session import open_session
from tonnage.watch.start_up import find_kinds, until_it_works
from tonnage.watch.work import BuildWork

_log = logging.getLogger(__name__)

FLEET_LIST_SECONDS: Final = 600.0
RESYNC_SECONDS: Final = 600.0
TELL_SECONDS: Final = 300.0

FLEET_FILE_SECONDS: Final = 5.0
"""Between two looks at a fleet file; a look that finds it unchanged costs nothing."""

EVENTS_SECONDS: Final = 2.0
"""What events that wait still get when the work is done; nobody depends on them."""

KOPF_SECONDS: Final = 5.0
"""What kopf gets to end after all else has ended."""

RELIST_SETTLE_SECONDS: Final = 5.0
RESYNC_SETTLE_SECONDS: Final = 1.0
"""Watches are often begun anew together; one list then follows all of them."""

FLEET_SETTLE_SECONDS: Final = 1.5
"""A node that comes up changes several times; the change is told once it has settled."""

_KINDS: Final = "the kinds of tonnage.dev"
_FLEET: Final = "nodes, pods and pools"


class LeaseLostError(Exception):
    """Another replica leads, or could: only a new process may compete again."""


class WatchStuckError(Exception):
    """kopf was to end, and has not: only the end of the process ends it."""


async def run_operator(
    settings: Settings, build_work: BuildWork, read_fleet_file: ReadFleetFile
) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code, 0 only for an end that was asked for."""
    _log.info("starting", extra={"settings": settings.to_dict()})
    scope = scope_of(settings, read_fleet_file)
    try:
        async with connect(settings.kubeconfig, settings.context) as connection:
            return await Operator(assemble(settings, connection, build_work, scope)).run()
    except ConnectionConfigError as error:
        _log.error("not started: %s", error)
        return 1


class Operator:
    """One replica; runs once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._background = Background(on_failure=self._end)
        self._open = AsyncExitStack()
        self._end_wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._stopped = asyncio.Event()
        self._fleet_known = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._was_asked = False

    async def run(self) -> int:
        """Live; returns the exit code."""
        parts = self._parts
        self._take_signals()
        parts.health.wait_for(_KINDS)
        parts.health.wait_for(_FLEET)
        try:
            self._background.start("event loop lag", parts.health.measure_lag())
            app = build_app(parts.health, parts.metrics.registry)
            host, port = parts.settings.listen_host, parts.settings.listen_port
            await self._open.enter_async_context(serve(app, host, port))
            await self._wait_for_kinds()
            if not self._end_wanted.is_set():
                await self._watch()
        except Exception:  # noqa: BLE001 - whatever ended the watch ends the process, and is told
            _log.exception("watching failed")
            return 1
        finally:
            await self.stop()
        _log.info("stopped", extra={"asked": self._was_asked})
        return 0 if self._was_asked and self._background.failure is None else 1

    async def start(self) -> None:
        """Begin to learn and to compete; events are taken in from now on."""
        self._tell_scope()
        self._background.start("signals", self._take_signals_back())
        self._background.start("events", self._parts.outbox.deliver())
        self._background.start("fleet", self._keep_fleet())
        if (file := self._parts.scope.fleet_file) is not None:
            self._background.start("fleet file", self._follow_file(file))
        self._background.start("leadership", self._lead())

    async def stop(self) -> None:
        """Finish what is in work, let another replica lead, and be silent. Can be called again."""
        parts = self._parts
        parts.queue.close()
        if self._working is not None:
            in_time = await drain(self._working, parts.queue, parts.settings.drain_seconds)
            self._working = None
            _log.info("drained", extra={"in_time": in_time})
            await parts.outbox.empty(EVENTS_SECONDS)
        await self._background.stop()
        await parts.elector.release()
        await self._open.aclose()
        self._stopped.set()

    async def _watch(self) -> None:
        watching = asyncio.create_task(self._run_kopf())
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        _, late = await asyncio.wait({watching}, timeout=KOPF_SECONDS)
        if not late:
            await watching
        elif self._was_asked:
            # One that is ended while it begins tries for ever to log in again (kopf 1.45). All that
            # was to be ended in order has ended: this is no failure.
            _log.warning("kopf did not end: ending without it")
        else:
            # A watch of kopf that failed leaves others that outlive their cancellation.
            raise WatchStuckError(f"kopf did not end within {KOPF_SECONDS:g} s of its watches")

    async def _run_kopf(self) -> None:
        scope = self._parts.scope
        await kopf.operator(
            registry=build_registry(
                kinds=scope.watched_by_kopf,
                route=self._parts.router.route,
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
        parts = self._parts
        credentials = await parts.connection.credentials()
        return open_session(credentials, parts.rights, parts.router.begun_anew)

    async def _wait_for_kinds(self) -> None:
        """A kind that is defined later than kopf starts would never be watched."""
        until = asyncio.create_task(self._end_wanted.wait())
        waiting = asyncio.create_task(self._await(_KINDS, self._list_kinds))
        await asyncio.wait({until, waiting}, return_when=asyncio.FIRST_COMPLETED)
        until.cancel()
        if waiting.done():
            await waiting
        waiting.cancel()

    async def _await(self, what: str, job: Callable[[], Awaitable[object]]) -> None:
        """Not ready, and saying why, until it works."""
        health = self._parts.health
        await until_it_works(what, job, health.still_waiting)
        health.reached(what)

    async def _list_kinds(self) -> None:
        await find_kinds(self._parts.api, self._parts.scope.defined)
        for kind in (DEPLOYMENTS, SERVICES):
            await self._parts.api.probe(kind, labels=OURS)

    async def _keep_fleet(self) -> None:
        await self._await(_FLEET, self._know_fleet)
        for follower in self._parts.followers:
            self._background.start(f"watch of {follower}", follower.follow())
        self._fleet_known.set()
        await repeat(
            "listing the fleet",
            self._relist_fleet,
            FLEET_LIST_SECONDS,
            wake=self._parts.signs.relist,
            settle_seconds=RELIST_SETTLE_SECONDS,
        )

    async def _follow_file(self, file: FleetFile) -> None:
        tell_fleet_file(self._parts.metrics.registry, lambda: file.problem is None)

        async def read_again() -> None:
            if await file.refresh():
                await self._relist_fleet()

        await repeat("reading the fleet file", read_again, FLEET_FILE_SECONDS)

    async def _lead(self) -> None:
        parts, start = self._parts, self._background.start
        await parts.elector.acquire()
        start("lease", self._hold())
        await self._fleet_known.wait()
        await parts.corrections.refresh()
        await self._await("reservations", parts.work.prime)
        never_search_what_is_there()
        self._working = start("workers", parts.controller.run())
        parts.signs.changed.set()
        start(
            "corrections",
            repeat("reading corrections", parts.corrections.refresh, LOOK_SECONDS),
        )
        parts.signs.resync.set()
        start(
            "resync",
            repeat(
                "resync",
                self._resync,
                RESYNC_SECONDS,
                wake=parts.signs.resync,
                settle_seconds=RESYNC_SETTLE_SECONDS,
            ),
        )
        start(
            "fleet changes",
            repeat(
                "telling of the fleet",
                parts.work.on_fleet_change,
                TELL_SECONDS,
                wake=parts.signs.changed,
                settle_seconds=FLEET_SETTLE_SECONDS,
            ),
        )
        start(
            "room",
            repeat(
                "waking who waits for GPUs",
                self._wake_waiting,
                TELL_SECONDS,
                wake=parts.signs.room,
                settle_seconds=FLEET_SETTLE_SECONDS,
            ),
        )

    async def _hold(self) -> None:
        await self._parts.elector.hold()
        raise LeaseLostError("the lease was lost")

    def _tell_scope(self) -> None:
        scope = self._parts.scope
        if scope.namespaces:
            _log.info(
                "GPUs that pods of other namespaces hold are not known: where they are taken,"
                " replicas wait for the scheduler",
                extra={"namespaces": list(scope.namespaces)},
            )

    async def _know_fleet(self) -> None:
        for follower in self._parts.followers:
            await follower.begin()
        await self._relist_fleet()

    async def _relist_fleet(self) -> None:
        if (file := self._parts.scope.fleet_file) is not None:
            await file.refresh()
        await relist_fleet(self._parts.api, self._parts.fleet, self._parts.looks)
        self._parts.metrics.syncs.fleet_listed.done()
        self._parts.missed.listed()

    async def _resync(self) -> None:
        parts = self._parts
        await resync(
            parts.api, parts.fleet, parts.queue.add, parts.specs, parts.looks, parts.resting
        )
        parts.metrics.syncs.resynced.done()
        parts.missed.listed()

    async def _wake_waiting(self) -> None:
        for key in self._parts.fleet.waiting_keys():
            self._parts.queue.add(key)

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end_as_asked)

    async def _take_signals_back(self) -> None:
        """kopf takes the signals before it says that it is ready; it would not tell us of them."""
        await self._ready.wait()
        self._take_signals()

    def _end_as_asked(self) -> None:
        self._was_asked = True
        self._end()

    def _end(self) -> None:
        self._parts.queue.close()
        self._end_wanted.set()
