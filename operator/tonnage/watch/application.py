"""The kopf side: what it watches, how, and as whom. Every handler is one call."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import kopf

from tonnage import delays
from tonnage.api.shard import Shard
from tonnage.kube.client import FULL_PAGE_SIZE
from tonnage.kube.labels import select_labels
from tonnage.kube.protocol import Kind, Object
from tonnage.watch.scope import WATCHED_BY_KOPF, labels_of

Observe = Callable[[Kind, str | None, Object], None]
"""Takes in an event: the kind, the type (None for what a list shows), and the object."""

Step = Callable[[], Awaitable[None]]
Login = Callable[[], Awaitable[kopf.AiohttpSession]]


def build_registry(
    *, kinds: Iterable[Kind], observe: Observe, login: Login, start: Step, stop: Step
) -> kopf.OperatorRegistry:
    """All handlers, on a registry of their own: importing this module registers nothing."""
    registry = kopf.OperatorRegistry()
    # A step that fails ends the operator; kopf would repeat it every minute.
    at_once = kopf.ErrorsMode.PERMANENT

    @kopf.on.startup(registry=registry, id="start", errors=at_once)
    async def on_startup(**_: Any) -> None:
        await start()

    @kopf.on.cleanup(registry=registry, id="stop", errors=at_once)
    async def on_cleanup(**_: Any) -> None:
        await stop()

    @kopf.on.login(registry=registry, id="login")
    async def on_login(**_: Any) -> kopf.AiohttpSession:
        return await login()

    for kind in kinds:
        _watch(registry, kind, observe)
    return registry


def build_settings(shard: Shard) -> kopf.OperatorSettings:
    """How kopf behaves and what it is shown of each kind; the reasons are those of version 1.45."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Our kinds are fixed: no list and watch of definitions and namespaces, and no right to it.
    settings.scanning.disabled = True

    watching = settings.watching
    watching.server_timeout = delays.WATCH_TIMEOUT
    watching.client_timeout = delays.WATCH_TIMEOUT + delays.REQUEST_TIMEOUT
    watching.connect_timeout = delays.CONNECT_TIMEOUT
    watching.inactivity_timeout = delays.WATCH_SILENT
    watching.reconnect_backoff = 1
    watching.chunk_size = FULL_PAGE_SIZE
    for kind in WATCHED_BY_KOPF:
        selector = select_labels(labels_of(kind, shard))
        watching.label_selectors[kind.group, kind.version, kind.plural] = selector

    settings.networking.request_timeout = delays.REQUEST_TIMEOUT
    settings.networking.connect_timeout = delays.CONNECT_TIMEOUT
    settings.networking.error_backoffs = delays.KOPF_BACKOFFS
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.queueing.idle_timeout = delays.KOPF_WORKER_IDLE
    settings.execution.max_workers = 4
    return settings


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last-seen state, and so writes no annotation and copies no object."""

    def build(self, **_: Any) -> Any:
        """No essence of anything: nothing is compared."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Keep nothing."""


def _watch(registry: kopf.OperatorRegistry, kind: Kind, observe: Observe) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        observe(kind, event["type"], dict(event["object"]))
