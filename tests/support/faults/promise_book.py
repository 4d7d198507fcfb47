"""When replicas were promised and when GPUs were lost, and what is to be said of it at rest."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.fleets.promises import (
    Block,
    Promise,
    Sight,
    can_pack,
    gpus_of_node,
    is_usable,
    owner_of,
    pack_largest_first,
)


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
        by_deployment = {(promise.owner, promise.deployment): promise for promise in promises}
        grown = [
            promise
            for key, promise in by_deployment.items()
            if _is_more(promise, self._promised.get(key))
        ]
        self._promised = by_deployment
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


def find_overpromised(promise: Promise, promises: Sequence[Promise], known: Sight) -> list[str]:
    """A promise that does not fit next to those of the others, by the nodes and pods as the
    operator knew them when it was made."""
    free = known.free_in_the_end(promises, leaving_out=promise.owner)
    earlier = [
        block
        for other in promises
        if other.owner != promise.owner
        for block in _blocks(other, known.outstanding(other))
    ]
    kept = pack_largest_first(earlier, free)
    stays = known.bound(promise, among=promise.nodes - free.keys())
    blocks = [*kept, *_blocks(promise, promise.replicas - stays)]
    if len(pack_largest_first(blocks, free)) == len(blocks) or can_pack(blocks, free):
        return []
    return [f"overpromised: {promise}, others {_summary(kept)}, free: {free}"]


def _blocks(promise: Promise, replicas: int) -> list[Block]:
    return [(promise.gpus, promise.nodes)] * replicas


def _summary(blocks: Iterable[Block]) -> dict[tuple[int, tuple[str, ...]], int]:
    return dict(Counter((size, tuple(sorted(nodes))) for size, nodes in blocks))


def _is_more(promise: Promise, before: Promise | None) -> bool:
    if before is None or before.gpus != promise.gpus:
        return promise.replicas > 0
    return promise.replicas > before.replicas


def _group(node: str) -> str:
    return node.rsplit("-", 1)[0]
