"""The kopf side: what it watches, how, and as whom. Every handler is one call."""

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import kopf

from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY
from tonnage.api.shard import Shard
from tonnage.kube.client import WHOLE_PAGE_SIZE
from tonnage.kube.forwarding import SHARDED
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS, INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.labels import select_labels
from tonnage.kube.protocol import Kind, Object
from tonnage.kube.watching import SILENT_SECONDS

WATCHED_BY_KOPF: Final = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS)
"""Those that users write; for all else there are followers."""

LONGEST_BACKOFF_SECONDS: Final = 30.0

Route = Callable[[Kind, str | None, Object], None]
Step = Callable[[], Awaitable[None]]
Login = Callable[[], Awaitable[kopf.AiohttpSession]]


def build_registry(
    *, kinds: Iterable[Kind], route: Route, login: Login, start: Step, stop: Step
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
        _watch(registry, kind, route)
    return registry


def build_settings(shard: Shard) -> kopf.OperatorSettings:
    """How kopf behaves and what it is shown of each kind; the reasons are those of version 1.45."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Our kinds are fixed: no list and watch of definitions and namespaces, and no right to it.
    settings.scanning.disabled = True

    watching = settings.watching
    watching.server_timeout = 300
    watching.client_timeout = 330
    watching.connect_timeout = 10
    watching.inactivity_timeout = SILENT_SECONDS
    watching.reconnect_backoff = 1
    watching.chunk_size = WHOLE_PAGE_SIZE
    for kind in WATCHED_BY_KOPF:
        selector = label_selector(kind, shard)
        watching.label_selectors[kind.group, kind.version, kind.plural] = selector

    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = EndlessBackoff()
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.queueing.idle_timeout = 5
    settings.execution.max_workers = 4
    return settings


def label_selector(kind: Kind, shard: Shard) -> str:
    """What is watched of a kind: what is of the shard, and of children those of ours."""
    ours = {LABEL_MANAGED_BY: MANAGED_BY} if kind in (DEPLOYMENTS, SERVICES) else {}
    of_shard = shard.labels if kind in SHARDED else {}
    return select_labels({**ours, **of_shard})


class EndlessBackoff:
    """Seconds between tries of a request: growing, capped, jittered, without an end.

    kopf ends the process when its backoffs do, also in an outage that all replicas share.
    """

    def __iter__(self) -> Iterator[float]:
        """Begin anew: each request has its own."""
        seconds = 1.0
        while True:
            yield seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
            seconds = min(2 * seconds, LONGEST_BACKOFF_SECONDS)


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last-seen state, and so writes no annotation and copies no object."""

    def build(self, **_: Any) -> Any:
        """No essence of anything: nothing is compared."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Keep nothing."""


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress of handlers, and so writes no annotation."""

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Keep nothing."""

    def purge(self, **_: Any) -> None:
        """Nothing to remove."""

    def touch(self, **_: Any) -> None:
        """Wake nobody by a write."""

    def clear(self, *, essence: Any) -> Any:
        """Nothing of ours is in it."""
        return essence


def _watch(registry: kopf.OperatorRegistry, kind: Kind, route: Route) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        route(kind, event["type"], dict(event["object"]))
