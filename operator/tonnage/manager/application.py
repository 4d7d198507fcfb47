"""kopf's registry and settings: what it watches, how, and as whom. Every handler is one call."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import kopf

from tonnage import delays
from tonnage.api.shard import Shard
from tonnage.kube.protocol import Kind, Object, select_labels
from tonnage.manager.scope import WATCHED_BY_KOPF, select_labels_of

Observe = Callable[[Kind, str | None, Object], None]
"""Receives an event: the kind, the type (None for an object in a list), and the object."""

LifecycleHook = Callable[[], Awaitable[None]]
Login = Callable[[], Awaitable[kopf.AiohttpSession]]


def build_registry(
    *,
    kinds: Iterable[Kind],
    observe: Observe,
    login: Login,
    start: LifecycleHook,
    stop: LifecycleHook,
) -> kopf.OperatorRegistry:
    """Register all handlers on a registry of their own; importing this module registers nothing."""
    registry = kopf.OperatorRegistry()
    # A hook that fails must end the operator; by default kopf repeats it every minute.
    permanent = kopf.ErrorsMode.PERMANENT

    @kopf.on.startup(registry=registry, id="start", errors=permanent)
    async def on_startup(**_: Any) -> None:
        await start()

    @kopf.on.cleanup(registry=registry, id="stop", errors=permanent)
    async def on_cleanup(**_: Any) -> None:
        await stop()

    @kopf.on.login(registry=registry, id="login")
    async def on_login(**_: Any) -> kopf.AiohttpSession:
        return await login()

    for kind in kinds:
        _register_event_handler(registry, kind, observe)
    return registry


def build_settings(shard: Shard) -> kopf.OperatorSettings:
    """Configure kopf, and select the objects of each kind. Comments refer to kopf 1.45."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # The kinds are fixed: do not list and watch CRDs and namespaces, which needs permissions.
    settings.scanning.disabled = True

    watching = settings.watching
    watching.server_timeout = delays.WATCH_TIMEOUT
    watching.client_timeout = delays.WATCH_TIMEOUT + delays.REQUEST_TIMEOUT
    watching.connect_timeout = delays.CONNECT_TIMEOUT
    watching.inactivity_timeout = delays.WATCH_SILENT
    watching.reconnect_backoff = 1
    watching.chunk_size = 1  # of a list, kopf takes only the version (`KopfResponse`)
    for kind in WATCHED_BY_KOPF:
        selector = select_labels(select_labels_of(kind, shard))
        watching.label_selectors[kind.group, kind.version, kind.plural] = selector

    settings.networking.request_timeout = delays.REQUEST_TIMEOUT
    settings.networking.connect_timeout = delays.CONNECT_TIMEOUT
    settings.networking.error_backoffs = delays.KOPF_BACKOFFS
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.queueing.idle_timeout = delays.KOPF_WORKER_IDLE
    settings.execution.max_workers = 4
    return settings


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no last-seen state, so kopf writes no annotation and copies no object."""

    def build(self, **_: Any) -> Any:
        """Return an empty essence, so that kopf compares nothing."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Return nothing, since nothing is stored."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


def _register_event_handler(registry: kopf.OperatorRegistry, kind: Kind, observe: Observe) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        observe(kind, event["type"], dict(event["object"]))
