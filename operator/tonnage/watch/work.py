"""What the loop is given by the process around it, and what it gives."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tonnage.kube.events import EventRecorder
from tonnage.kube.protocol import KubeApi
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.learning import Lessons
from tonnage.reconcile.looks import Looks
from tonnage.reconcile.newborns import Newborns
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.status_book import StatusBook
from tonnage.telemetry.prometheus import QueryOutcome


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the loop works with. `wake` puts a key into the queue, from the event loop's thread;
    `count_question` is told what became of a question to Prometheus; `lessons` is what starts have
    taught, `looks` what was read of objects that nothing new was told of, `newborns` those that
    nothing else is known of."""

    api: KubeApi
    fleet: FleetState
    events: EventRecorder
    book: StatusBook
    wake: Callable[[Key], None]
    count_question: Callable[[QueryOutcome], None]
    lessons: Lessons
    looks: Looks
    newborns: Newborns


@dataclass(frozen=True, slots=True)
class Work:
    """What the loop does.

    `prime` fills the ledger of reservations from what exists, before the first reconcile of a new
    leader. `on_fleet_change` is called by the leader soon after the fleet changed, not too often,
    and every few minutes. Both raise ApiError, and are then called again.
    """

    reconcile: Callable[[Key], Awaitable[Requeue]]
    prime: Callable[[], Awaitable[None]]
    on_fleet_change: Callable[[], Awaitable[None]]


BuildWork = Callable[[Surroundings], Work]
