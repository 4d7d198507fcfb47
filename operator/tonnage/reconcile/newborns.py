"""Objects that their watch has just told of, and of which nothing else is known: what makes a first
child without a look.

While this process leads, nobody else makes children. So an object that it is told of as new, that
was not there when it began to lead, and that neither a child nor a look has told it of, has none:
to look whether it has would only make it wait. Where that is wrong all the same, its name is taken,
and the child, which is only ever made, is not made.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tonnage.api.status import reported_status
from tonnage.kube.kinds import DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import Look


@dataclass(slots=True)
class Grown:
    """One whose first child was just made: the object as it was then, and the kinds of which
    anything that belongs to it was told since it was new."""

    itself: Object
    told: set[Kind] = field(default_factory=set)


class Newborns:
    """Those that wait for their first child; for one event loop."""

    def __init__(self) -> None:
        self._leads = False
        self._known: set[Key] = set()
        self._born: dict[Key, Object] = {}
        self._resting: dict[Key, Grown | None] = {}

    def prime(self, known: Iterable[Key]) -> None:
        """This process leads from now on; of these keys something was there before."""
        self._leads = True
        self._known = set(known)
        self._born.clear()
        self._resting.clear()

    def tell(self, key: Key, event_type: str | None, body: Object) -> None:
        """An event told of the object itself; `event_type` is None for what a list showed."""
        born = self._born.pop(key, None)
        if key in self._resting:
            self._resting[key] = None
        if not self._leads or key in self._known or _has_history(body):
            return
        if event_type == "ADDED" or (event_type == "MODIFIED" and _is_same(born, body)):
            self._born[key] = body

    def outgrow(self, key: Key, kind: Kind | None = None) -> None:
        """Something else is known of it now: a child of this kind, or what a look found."""
        self._born.pop(key, None)
        if self._leads:
            self._known.add(key)
        grown = self._resting.get(key)
        if grown is not None and kind is not None:
            grown.told.add(kind)

    def take(self, key: Key) -> Look | None:
        """What an event told of it, once; None where it is none of the newborn."""
        born = self._born.get(key)
        self.outgrow(key)
        return None if born is None else Look(born, {PODS: (), **_NO_CHILDREN})

    def rest(self, key: Key, itself: Object) -> None:
        """Its first child is made, and a look at it follows in a moment."""
        self._resting[key] = Grown(itself)

    def wake(self, key: Key) -> Grown | None:
        """That look begins; what is known, unless it is another object by now or nobody knows."""
        return self._resting.pop(key, None)

    def rests(self, key: Key) -> bool:
        """Whether that look is still to come: it will see whatever becomes of the child."""
        return key in self._resting

    def forget(self, key: Key) -> None:
        """A look found that there is none of that name any more."""
        self._born.pop(key, None)
        self._known.discard(key)

    def forget_all(self) -> None:
        """Events may have been missed: those that wait are looked at."""
        self._known.update(self._born)
        self._born.clear()
        self._resting = dict.fromkeys(self._resting)


_NO_CHILDREN: dict[Kind, tuple[Object, ...]] = {SERVICES: (), DEPLOYMENTS: ()}


def _has_history(body: Object) -> bool:
    return bool(reported_status(body)) or "deletionTimestamp" in body["metadata"]


def _is_same(born: Object | None, body: Object) -> bool:
    return born is not None and born["metadata"]["uid"] == body["metadata"]["uid"]
