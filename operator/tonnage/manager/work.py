"""The interface between the reconcile loop and the process that runs it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tonnage.controller.correction_store import CorrectionStore
from tonnage.controller.metrics.registry import Metrics
from tonnage.controller.metrics.statuses import StatusMetrics
from tonnage.controller.settings import Settings
from tonnage.informers.stores import Stores
from tonnage.kube.events import EventRecorder
from tonnage.kube.protocol import Kind, KubeApi
from tonnage.kube.rights import Right
from tonnage.manager.scope import Scope
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key, Requeue


@dataclass(frozen=True, slots=True)
class LoopDependencies:
    """What the loop uses.

    `missing_right` returns the permission that the operator lacks to keep `stores` current for an
    object, `has_kind` whether they have the objects of a kind that the cluster may lack. `wake`
    enqueues a key; call it in the event loop's thread. `corrections` are the memory corrections.
    `is_leading`: whether this process may write now.
    """

    settings: Settings
    scope: Scope
    api: KubeApi
    stores: Stores
    missing_right: Callable[[Key], Right | None]
    has_kind: Callable[[Kind], bool]
    fleet: FleetState
    events: EventRecorder
    metrics: Metrics
    status_metrics: StatusMetrics
    wake: Callable[[Key], None]
    corrections: CorrectionStore
    is_leading: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Work:
    """The functions of the loop.

    A new leader calls `rebuild_state` before its first reconcile, to rebuild the state in memory
    from the existing objects. It calls `on_fleet_change` soon after the fleet changed, in batches,
    and every few minutes. Both may raise ApiError and are then retried.
    """

    reconcile: Callable[[Key], Awaitable[Requeue]]
    rebuild_state: Callable[[], Awaitable[None]]
    on_fleet_change: Callable[[], Awaitable[None]]


BuildWork = Callable[[LoopDependencies], Work]
