"""What the loop is given by the process around it, and what it gives."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tonnage.informers.stores import Stores
from tonnage.kube.events import EventRecorder
from tonnage.kube.protocol import KubeApi
from tonnage.kube.rights import Right
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.learning import Lessons
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.registry import Metrics
from tonnage.runtime.status_book import StatusBook


@dataclass(frozen=True, slots=True)
class LoopDependencies:
    """What the loop works with.

    `stores` have what watches tell; `missing_right` is the right that the operator lacks to keep
    them true. `wake` puts a key into the queue, from the event loop's thread. `lessons` is what
    starts have taught.
    """

    api: KubeApi
    stores: Stores
    missing_right: Callable[[], Right | None]
    fleet: FleetState
    events: EventRecorder
    metrics: Metrics
    book: StatusBook
    wake: Callable[[Key], None]
    lessons: Lessons


@dataclass(frozen=True, slots=True)
class Work:
    """What the loop does.

    `prime` rebuilds the state that is kept in memory from what exists, before the first reconcile
    of a new leader. `on_fleet_change` is called by the leader soon after the fleet changed, not too
    often, and every few minutes. Both raise ApiError, and are then called again.
    """

    reconcile: Callable[[Key], Awaitable[Requeue]]
    prime: Callable[[], Awaitable[None]]
    on_fleet_change: Callable[[], Awaitable[None]]


BuildWork = Callable[[LoopDependencies], Work]
