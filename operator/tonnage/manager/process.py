"""The life of the process: connect, wait for Tonnage's kinds, watch, lead, stop in order.

kopf runs inside it. When kopf ends, the process ends. Only a requested stop has exit code 0; after
any other end the kubelet restarts the process.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final

import kopf

from tonnage import delays
from tonnage.controller.background import Background
from tonnage.controller.garbage_collection import freeze_live_objects
from tonnage.controller.metrics.components import register_fleet_file_metric
from tonnage.controller.periodic import repeat
from tonnage.controller.queueing.priority import Priority
from tonnage.controller.server import build_app, serve
from tonnage.controller.settings import Settings
from tonnage.controller.workers import drain
from tonnage.informers.reflector import Reflector
from tonnage.informers.resync import verify_all
from tonnage.kube.connection import ConnectionConfigError, connect
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES
from tonnage.kube.protocol import ApiError, ForbiddenError, Kind, KindMissingError, Object
from tonnage.manager.application import build_registry, build_settings
from tonnage.manager.components import Components, assemble
from tonnage.manager.fleet_file import FleetFile, ReadFleetFile
from tonnage.manager.kopf_session import open_session
from tonnage.manager.scope import OPTIONAL, build_scope, select_labels_of
from tonnage.manager.start_up import check_kinds, retry_until_success
from tonnage.manager.work import BuildWork
from tonnage.reconcile.key import Key

_log = logging.getLogger(__name__)

_KINDS: Final = "the kinds of tonnage.dev"
_FLEET: Final = "nodes, pods and pools"

_LISTS_AT_ONCE: Final = 2
"""While the operator reads a page of one list, the API server makes one of the other."""


class LeaseLostError(Exception):
    """Another replica may lead; only a new process may compete again."""


class WatchStuckError(Exception):
    """kopf did not stop; only an exit of the process stops it."""


async def run_operator(
    settings: Settings, build_work: BuildWork, read_fleet_file: ReadFleetFile
) -> int:
    """Run until SIGTERM or SIGINT; return the exit code, 0 only for a requested stop."""
    _log.info("starting", extra={"settings": settings.to_dict()})
    scope = build_scope(settings, read_fleet_file)
    try:
        async with connect(settings.kubeconfig, settings.context) as connection:
            return await Operator(assemble(settings, connection, build_work, scope)).run()
    except ConnectionConfigError as error:
        _log.error("cannot start: %s", error)
        return 1


class Operator:
    """One replica; runs once."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._background = Background(on_failure=self._request_stop)
        self._exit_stack = AsyncExitStack()
        self._stop_requested = asyncio.Event()
        self._ready = asyncio.Event()
        self._stopped = asyncio.Event()
        self._synced = asyncio.Event()
        self._listed_by_kopf: set[str] = set()
        self._workers: asyncio.Task[None] | None = None
        self._stopped_by_signal = False

    async def run(self) -> int:
        """Run until a stop is requested or a task fails; return the exit code."""
        components = self._components
        health = components.health
        self._install_signal_handlers()
        health.wait_for(_KINDS)
        health.wait_for(_FLEET)
        try:
            self._background.start("event loop lag", health.measure_lag())
            await self._exit_stack.enter_async_context(self._serve())
            await self._wait_for_kinds()
            if not self._stop_requested.is_set():
                await self._run_until_end()
        except Exception:  # noqa: BLE001 - any error ends the process, and is logged
            _log.exception("operator failed")
            return 1
        finally:
            await self.stop()
        _log.info("stopped", extra={"asked": self._stopped_by_signal})
        return 0 if self._stopped_by_signal and self._background.failure is None else 1

    async def start(self) -> None:
        """Start to fill the stores and to compete for the lease."""
        self._log_scope()
        self._background.start("signals", self._reinstall_signal_handlers())
        self._background.start("events", self._components.kube.events.deliver())
        self._background.start("stores", self._keep_stores())
        self._background.start("leadership", self._lead())

    async def stop(self) -> None:
        """Drain the workers, stop all tasks and release the lease. May be called again."""
        loop, kube = self._components.loop, self._components.kube
        loop.queue.close()
        if self._workers is not None:
            seconds = self._components.settings.drain_seconds
            in_time = await drain(self._workers, loop.queue, seconds)
            self._workers = None
            _log.info("drained", extra={"in_time": in_time})
            await kube.events.empty(delays.END_EVENTS)
        await self._background.stop()
        await kube.elector.release()
        await self._exit_stack.aclose()
        self._stopped.set()

    def observe(self, kind: Kind, event_type: str | None, obj: Object) -> None:
        """Handle an event of a kind that kopf watches."""
        self._components.metrics.api.on_event(kind.plural)
        self._components.informers.stores.store_for(kind).observe(event_type, obj)

    def listed(self, plural: str) -> None:
        """Record that kopf listed a kind, because its watch started or restarted. The watch
        delivers nothing older, so the stores need a list."""
        self._listed_by_kopf.add(plural)
        self._components.signals.listed.set()

    def _serve(self) -> AbstractAsyncContextManager[int]:
        """Serve health and metrics, with TLS if there is a certificate."""
        components = self._components
        settings, certificate = components.settings, components.settings.read_certificate()
        app = build_app(components.health, components.metrics.registry, components.metrics_access)
        if certificate is not None:
            self._repeat("read certificate", certificate.refresh, delays.READ_CERTIFICATE)
        tls = certificate.context if certificate is not None else None
        return serve(app, settings.listen_host, settings.listen_port, tls)

    async def _run_until_end(self) -> None:
        watching = asyncio.create_task(self._run_kopf())
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        _, late = await asyncio.wait({watching}, timeout=delays.END_KOPF)
        if not late:
            await watching
        elif self._stopped_by_signal:
            # kopf 1.45 tries for ever to log in again if it is stopped while it starts. The
            # operator's own tasks have stopped in order, so this is not a failure.
            _log.warning("kopf did not stop in time, exiting without it")
        else:
            # After one of kopf's watches has failed, others outlive their cancellation.
            raise WatchStuckError(f"kopf did not stop within {delays.END_KOPF:g} s")

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
            # Unused without peering. By default kopf looks up the user's name, which fails for a
            # uid without an entry in /etc/passwd.
            identity="tonnage",  # type: ignore[arg-type] # a str by another name, not exported
            stop_flag=self._stop_requested,
            ready_flag=self._ready,
        )

    async def _log_in(self) -> kopf.AiohttpSession:
        kube = self._components.kube
        credentials = await kube.connection.credentials()
        return open_session(credentials, kube.rights, self.listed)

    async def _wait_for_kinds(self) -> None:
        """Wait until the kinds exist: kopf never watches one that is defined after it starts."""
        stop = asyncio.create_task(self._stop_requested.wait())
        kinds = asyncio.create_task(self._wait_for(_KINDS, self._check_kinds))
        await asyncio.wait({stop, kinds}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if kinds.done():
            await kinds
        kinds.cancel()

    async def _wait_for(self, what: str, job: Callable[[], Awaitable[object]]) -> None:
        """Retry the job until it succeeds; until then readiness fails and shows the error."""
        health = self._components.health
        await retry_until_success(what, job, health.record_failure)
        health.reached(what)

    async def _check_kinds(self) -> None:
        scope = self._components.scope
        await check_kinds(self._components.kube.api, scope.selections(scope.watched_by_kopf))

    # Stores

    async def _keep_stores(self) -> None:
        """Fill the stores, then keep them current, for ever."""
        components = self._components
        if (file := components.scope.fleet_file) is not None:
            register_fleet_file_metric(components.metrics.registry, lambda: file.problem is None)
        await self._wait_for_kopf()
        await self._wait_for(_FLEET, self._fill_stores)
        for reflector in components.informers.by_watch:
            self._background.start(f"watch of {reflector}", reflector.run())
        if file is not None:
            self._background.start("fleet file", self._watch_file(file))
        components.metrics.syncs.fleet_listed.done()
        for reflector in components.informers.reflectors:
            components.metrics.api.changes_missed(reflector.selection.kind.plural, 0)
        self._synced.set()
        self._repeat("check watches", self._check_watches, delays.CHECK_WATCHES)
        self._repeat(
            "list after kopf", self._list_after_kopf, delays.VERIFY, wake=components.signals.listed
        )
        await repeat("verify stores", self._verify_stores, delays.VERIFY)

    async def _wait_for_kopf(self) -> None:
        """Wait until kopf has listed its kinds. A later list has all changes that kopf missed."""
        listed = self._components.signals.listed
        while {
            kind.plural for kind in self._components.scope.watched_by_kopf
        } - self._listed_by_kopf:
            await listed.wait()
            listed.clear()
        self._listed_by_kopf.clear()

    async def _list_after_kopf(self) -> None:
        """List the kinds of which kopf has restarted a watch."""
        while self._listed_by_kopf:
            plural = self._listed_by_kopf.pop()
            try:
                for reflector in self._components.informers.by_kopf:
                    if reflector.selection.kind.plural == plural:
                        await reflector.list()
            except ApiError:
                self._listed_by_kopf.add(plural)
                raise

    async def _fill_stores(self) -> None:
        if (file := self._components.scope.fleet_file) is not None:
            await file.refresh()
            self._fill_from_file(file)
        due = (one for one in self._components.informers.reflectors if not one.is_listed)

        async def fill() -> None:
            for reflector in due:
                await self._fill_store(reflector)

        # An error ends one of them; the other lists the rest.
        fills = (fill() for _ in range(_LISTS_AT_ONCE))
        for error in await asyncio.gather(*fills, return_exceptions=True):
            if error is not None:
                raise error

    async def _fill_store(self, reflector: Reflector) -> None:
        """List once. Where an optional kind is denied or missing, the watch goes on to try."""
        try:
            await reflector.list()
        except (ForbiddenError, KindMissingError):
            if reflector.selection.kind not in OPTIONAL:
                raise

    async def _verify_stores(self) -> None:
        components = self._components
        count = components.metrics.api.changes_missed
        if await verify_all(components.informers.reflectors, count):
            components.metrics.syncs.fleet_listed.done()

    async def _check_watches(self) -> None:
        """Verify the stores whose watch has not delivered one of the operator's own writes."""
        reflectors = self._components.informers.reflectors
        silent = [reflector for reflector in reflectors if reflector.take_overdue()]
        for reflector in silent:
            _log.warning("watch of %s is silent, comparing its store with a list", reflector)
        await verify_all(silent, self._components.metrics.api.changes_missed)

    async def _watch_file(self, file: FleetFile) -> None:
        async def refresh() -> None:
            if await file.refresh():
                self._fill_from_file(file)

        await repeat("read fleet file", refresh, delays.READ_FLEET_FILE)

    def _fill_from_file(self, file: FleetFile) -> None:
        stores, shard = self._components.informers.stores, self._components.scope.shard
        for kind in (NODES, ACCELERATOR_POOLS):
            file.fill(stores.store_for(kind), kind, select_labels_of(kind, shard))

    # Leading

    async def _lead(self) -> None:
        components, start = self._components, self._background.start
        loop, signals = components.loop, components.signals
        await components.kube.elector.acquire()
        start("lease", self._hold_lease())
        await self._synced.wait()
        await loop.corrections.refresh()
        await self._wait_for("reservations", loop.work.rebuild_state)
        freeze_live_objects()
        self._workers = start("workers", loop.controller.run())
        signals.changed.set()
        signals.resync.set()
        self._repeat("read corrections", loop.corrections.refresh, delays.READ_CORRECTIONS)
        self._repeat(
            "resync",
            self._resync,
            delays.RESYNC,
            wake=signals.resync,
            batch_seconds=delays.RESYNC_BATCH,
        )
        self._repeat(
            "report pools",
            loop.work.on_fleet_change,
            delays.REPORT_FLEET,
            wake=signals.changed,
            batch_seconds=delays.FLEET_BATCH,
        )
        self._repeat(
            "requeue objects that wait for GPUs",
            self._requeue_waiting,
            delays.REPORT_FLEET,
            wake=signals.capacity_freed,
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

    async def _hold_lease(self) -> None:
        await self._components.kube.elector.hold()
        raise LeaseLostError("the lease was lost")

    async def _resync(self) -> None:
        components = self._components
        informers, loop = components.informers, components.loop
        for owner in informers.resync.due({*informers.stores.owners(), *loop.fleet.known_keys()}):
            loop.queue.add(Key(*owner), Priority.RESYNC)
        components.metrics.syncs.resynced.done()

    async def _requeue_waiting(self) -> None:
        for key in self._components.loop.fleet.waiting_keys():
            self._components.loop.queue.add(key)

    # The process

    def _log_scope(self) -> None:
        scope = self._components.scope
        if scope.namespaces:
            _log.info(
                "pods of other namespaces are not watched: replicas stay pending if such pods hold"
                " their GPUs",
                extra={"namespaces": list(scope.namespaces)},
            )

    def _install_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_on_signal)

    async def _reinstall_signal_handlers(self) -> None:
        """Install the handlers again: kopf replaces them before it sets its ready flag."""
        await self._ready.wait()
        self._install_signal_handlers()

    def _stop_on_signal(self) -> None:
        self._stopped_by_signal = True
        self._request_stop()

    def _request_stop(self) -> None:
        self._components.loop.queue.close()
        self._stop_requested.set()
