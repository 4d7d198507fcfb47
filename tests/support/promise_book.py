"""When replicas were promised and when GPUs were lost, and what is to be said of it at rest."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.promises import Promise, Sight, gpus_of_node, is_usable, owner_of


@dataclass(slots=True)
class Verdict:
    """What one history or many came to."""

    steps: int = 0
    promises: int = 0
    scattered: int = 0
    double_bookings: list[str] = field(default_factory=list)
    restless: int = 0
    """Times that operator and controllers went on and on."""

    def add(self, other: "Verdict") -> None:
        """Count another one in."""
        self.steps += other.steps
        self.promises += other.promises
        self.scattered += other.scattered
        self.double_bookings += other.double_bookings
        self.restless += other.restless


class PromiseBook:
    """Kept from what is seen of a cluster moment by moment, however often that is."""

    def __init__(self) -> None:
        self._promised_at: dict[tuple[str, str], int] = {}
        self._promised: dict[tuple[str, str], Promise] = {}
        self._lost_at: dict[str, int] = {}
        self._usable: set[str] = set()
        self._foreign: set[str] = set()

    def note_losses(self, sight: Sight, moment: int) -> None:
        """Nodes that are gone or shut, and pods of others that were bound, since the last look."""
        usable = {node["metadata"]["name"] for node in sight.nodes if is_usable(node)}
        foreign = {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in sight.pods
            if owner_of(pod) is None and "nodeName" in pod["spec"]
        }
        taken = {node for uid, node in foreign.items() if uid not in self._foreign}
        self._lost_at |= dict.fromkeys((self._usable - usable) | taken, moment)
        self._usable, self._foreign = usable, set(foreign)

    def note_promises(self, promises: Iterable[Promise], moment: int) -> list[Promise]:
        """Those that ask for more than at the last look, made with what was known at `moment`."""
        found = {(promise.owner, promise.deployment): promise for promise in promises}
        grown = [
            promise for key, promise in found.items() if _is_more(promise, self._promised.get(key))
        ]
        self._promised = found
        for promise in grown:
            self._promised_at[promise.owner, promise.deployment] = moment
        return grown

    def find_unkept(self, sight: Sight, promises: Iterable[Promise]) -> tuple[list[str], int]:
        """At rest: promises without GPUs, and how many replicas only lack a block large enough."""
        free, unkept, scattered = sight.free(), [], 0
        for promise in promises:
            missing = sight.outstanding(promise)
            if not missing or self._lost_since(promise):
                continue
            if missing * promise.gpus <= sum(free.get(name, 0) for name in promise.nodes):
                scattered += missing
            else:
                unkept.append(f"unkept: {missing} replicas of {promise}, free: {free}")
        return unkept, scattered

    def _lost_since(self, promise: Promise) -> bool:
        """Whether GPUs were lost on any node of the groups (`GROUP-NUMBER`) it was made on."""
        since = self._promised_at.get((promise.owner, promise.deployment), 0)
        groups = {_group(name) for name in promise.nodes}
        return any(
            at >= since and (not groups or _group(name) in groups)
            for name, at in self._lost_at.items()
        )


def find_overcommitted(sight: Sight) -> list[str]:
    """Nodes whose bound pods ask for more GPUs than there are."""
    held = sight.held()
    return [
        f"overcommitted: {held[name]} of {gpus_of_node(node)} GPUs of {name} are held"
        for node in sight.nodes
        for name in [node["metadata"]["name"]]
        if held[name] > gpus_of_node(node)
    ]


def _is_more(promise: Promise, before: Promise | None) -> bool:
    if before is None or before.gpus != promise.gpus:
        return promise.replicas > 0
    return promise.replicas > before.replicas


def _group(node: str) -> str:
    return node.rsplit("-", 1)[0]
