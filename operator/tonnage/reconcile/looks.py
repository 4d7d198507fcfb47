"""What the API server answered in the last look at an object, good until something of it changes.

A look costs four reads. Where no event has told of anything newer than what the last one read, or
was answered to its own writes, the next one would read the same. So a reconcile plans from the
answers of before, and where nothing is to be done and nothing to be told, it ends there. Whatever
is to be done, is done after a live look: what is remembered can hold up work, and can never do any.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from tonnage.api.names import LABEL_OWNER
from tonnage.fit.corrections import LearntCorrections
from tonnage.kube.forwarding import ForwardingKubeApi
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import Kind, KubeApi, Labels, Object
from tonnage.reconcile.key import Key

MAX_LOOKS: Final = 16384
"""Looks remembered, of some KiB each; the one used least recently is forgotten first."""

GOOD_FOR: Final = timedelta(minutes=30)
"""After a look, or after the lists that bore it out. A watch can be silent, and lists that would
find what it did not tell can fail."""

BELONGINGS: Final = (SERVICES, PODS, DEPLOYMENTS)
_ALL: Final = (INFERENCE_DEPLOYMENTS, *BELONGINGS)
_objects = list[Object]  # inside the classes, `list` is the verb


@dataclass(frozen=True, slots=True)
class Look:
    """An object and all that belongs to it, as one look found them or left them."""

    itself: Object
    belongings: Mapping[Kind, Sequence[Object]]

    def versions(self) -> dict[Kind, dict[str, str]]:
        """The resourceVersion of everything, by kind and uid."""
        found = {INFERENCE_DEPLOYMENTS: [self.itself], **self.belongings}
        return {
            kind: {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in ones}
            for kind, ones in found.items()
        }


class RecordingApi(ForwardingKubeApi):
    """Hands every call on, and keeps what is answered about one object."""

    def __init__(self, behind: KubeApi, key: Key) -> None:
        super().__init__(behind)
        self._key = key
        self._itself: Object | None = None
        self._belongings: dict[Kind, dict[str, Object]] = {}
        self._is_outdated = False

    def look(self) -> Look | None:
        """What was read, as later writes left it; None where not all of it is known."""
        if self._itself is None or self._is_outdated or len(self._belongings) < len(BELONGINGS):
            return None
        belongings = {kind: list(found.values()) for kind, found in self._belongings.items()}
        return Look(self._itself, belongings)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        found = await super().get(kind, namespace, name)
        if (kind, name) == (INFERENCE_DEPLOYMENTS, self._key.name):
            self._itself = found
        return found

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> _objects:
        """Read all objects with these labels live."""
        found = await super().list(kind, namespace, labels)
        if kind in BELONGINGS and labels == {LABEL_OWNER: self._key.name}:
            self._belongings[kind] = {one["metadata"]["uid"]: one for one in found}
        return found

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Server-side apply as field manager `tonnage`, forced."""
        stored = await super().apply(kind, body)
        if kind in self._belongings:
            self._belongings[kind][stored["metadata"]["uid"]] = stored
        return stored

    async def create(self, kind: Kind, body: Object) -> Object:
        """Make an object that nobody has yet."""
        stored = await super().create(kind, body)
        if kind in self._belongings:
            self._belongings[kind][stored["metadata"]["uid"]] = stored
        return stored

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of /status as field manager `tonnage-status`, forced."""
        self._itself = await super().apply_status(kind, body)
        return self._itself

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> None:
        """Delete exactly this object as read."""
        self._is_outdated = True
        await super().delete(kind, namespace, name, uid, resource_version)

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> None:
        """Set spec.replicas of this object and of no namesake."""
        self._is_outdated = True
        await super().scale(kind, seen, replicas)


class RecallingApi(ForwardingKubeApi):
    """Answers from a look what the look knows, and hands every other call on; `asked_beyond` is
    whether there was any: what that read, no event and no list tells of."""

    def __init__(self, behind: KubeApi, look: Look) -> None:
        super().__init__(behind)
        self._look = look
        self.asked_beyond = False

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """The object as the look found it; any other is read live. Raises NotFoundError."""
        if (kind, name) == (INFERENCE_DEPLOYMENTS, self._look.itself["metadata"]["name"]):
            return self._look.itself
        self.asked_beyond = True
        return await super().get(kind, namespace, name)

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> _objects:
        """What belongs to the object as the look found it; all else is read live."""
        if kind in BELONGINGS:
            return list(self._look.belongings[kind])
        self.asked_beyond = True
        return await super().list(kind, namespace, labels)

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, limit_bytes: int
    ) -> str:
        """The end of a container's log. Raises NotFoundError when there is none."""
        self.asked_beyond = True
        return await super().pod_log(
            namespace, pod, container, previous=previous, limit_bytes=limit_bytes
        )


@dataclass(frozen=True, slots=True)
class PackedLook:
    """A look, packed: as objects five thousand of them would take half a GiB."""

    itself: bytes
    belongings: Mapping[Kind, Sequence[bytes]]
    versions: Mapping[Kind, Mapping[str, str]]

    @classmethod
    def of(cls, look: Look) -> "PackedLook":
        """Pack it."""
        packed = {kind: tuple(map(pack, found)) for kind, found in look.belongings.items()}
        return cls(pack(look.itself), packed, look.versions())

    def unpack(self) -> Look:
        """The look as it was."""
        found = {kind: [unpack(one) for one in packed] for kind, packed in self.belongings.items()}
        return Look(unpack(self.itself), found)

    def holds(self, told: Mapping[str, str | None]) -> bool:
        """Whether it saw all versions that were told of, by uid."""
        return all(self.version(uid) == version for uid, version in told.items())

    def version(self, uid: str) -> str | None:
        """The resourceVersion of one of the objects; None for any other."""
        return next((found[uid] for found in self.versions.values() if uid in found), None)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a plan follows from beside what is read of its object: `fleet` is the number of changes
    of all that is placed on and of who waits for it, `lessons` what starts have taught."""

    fleet: int
    lessons: LearntCorrections


@dataclass(slots=True)
class _Kept:
    look: PackedLook
    since: datetime
    is_at_rest: bool = False
    planned_in: Circumstances | None = None


@dataclass(slots=True)
class _Meanwhile:
    """What happens while all is listed: what events told, and which objects were looked at, or are
    to be: those looks are newer than the lists."""

    told: dict[Key, dict[str, str | None]] = field(default_factory=dict)
    looked_at: set[Key] = field(default_factory=set)


class Looks:
    """The last looks at all objects; for one event loop."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._told: dict[Key, dict[str, str | None]] = {}
        self._meanwhile: _Meanwhile | None = None
        self._listed: dict[Kind, datetime] = {}

    def tell(self, key: Key, uid: str, version: str | None) -> bool:
        """An event told of something that is the object or belongs to it; `version` is its
        resourceVersion, None where it is gone. Whether that may be news."""
        if key in self._told:
            self._told[key][uid] = version
        if self._meanwhile is not None:
            self._meanwhile.told.setdefault(key, {})[uid] = version
        kept = self._kept.get(key)
        if kept is None:
            return True
        is_news = kept.look.version(uid) != version
        if is_news:
            del self._kept[key]
        return is_news

    def listed(self, kind: Kind, found: Mapping[Key, Mapping[str, str]]) -> None:
        """A list showed all objects of a kind; `found` are their versions by uid, by whose they
        are. What was read otherwise holds no more, whether or not an event told so; of looks under
        way nobody knows whether they came first."""
        self._told.clear()
        self._meanwhile = None
        self._listed[kind] = self._now()
        for key, kept in list(self._kept.items()):
            if kept.look.versions[kind] != found.get(key, {}):
                del self._kept[key]

    def begin_all(self) -> None:
        """All that looks are made of is about to be listed."""
        self._meanwhile = _Meanwhile()

    def end_all(self, found: Iterable[tuple[Key, PackedLook]]) -> None:
        """The lists are at their end. What they showed is kept as a look at each object, unless
        something newer was told meanwhile, or it was looked at."""
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is None:
            return
        for key, look in found:
            is_newer = key in meanwhile.looked_at or key in self._told
            if not is_newer and look.holds(meanwhile.told.get(key, {})):
                self._keep(key, look)

    def begin(self, key: Key) -> None:
        """A live look begins: what was told before, it will see."""
        self._kept.pop(key, None)
        self._told[key] = {}

    def end(self, key: Key, look: Look | None) -> None:
        """It is over. What it saw is kept, unless something newer was told meanwhile."""
        told = self._told.pop(key, None)
        if self._meanwhile is not None:
            self._meanwhile.looked_at.add(key)
        if look is None or told is None:
            return
        packed = PackedLook.of(look)
        if packed.holds(told):
            self._keep(key, packed)

    def recall(self, key: Key) -> Look | None:
        """The last look, where it still holds."""
        kept = self._kept.get(key)
        if kept is None or not self._is_good(kept):
            return None
        self._kept.move_to_end(key)
        return kept.look.unpack()

    def knows(self, key: Key) -> bool:
        """Whether there is a look that still holds, or one under way."""
        kept = self._kept.get(key)
        return key in self._told or (kept is not None and self._is_good(kept))

    def rest(self, key: Key, planned_in: Circumstances | None = None) -> None:
        """What was read leaves nothing to do; in these circumstances, or (None) as far as anybody
        knew who was asked beside."""
        kept = self._kept.get(key)
        if kept is not None:
            kept.is_at_rest, kept.planned_in = True, planned_in

    def would_rest(self, key: Key, now: Circumstances) -> bool:
        """Whether another look in the circumstances of now would come to the same: that nothing is
        to be done."""
        kept = self._kept.get(key)
        return kept is not None and kept.planned_in == now and self._is_good(kept)

    def is_at_rest(self, key: Key) -> bool:
        """Whether an event of what was read already is no reason to look again."""
        kept = self._kept.get(key)
        return kept is not None and kept.is_at_rest

    def forget(self, key: Key) -> None:
        """Something may have become of what was read by now, and no event told of it."""
        self._kept.pop(key, None)
        self._told.pop(key, None)
        if self._meanwhile is not None:
            self._meanwhile.looked_at.add(key)

    def forget_all(self) -> None:
        """Nothing is known any more of what events told, nor will be of what was read by now."""
        self._kept.clear()
        self._told.clear()
        self._meanwhile = None

    def _is_good(self, kept: _Kept) -> bool:
        """Each list of a kind that showed nothing else has borne the look out."""
        borne_out = min(self._listed.get(kind, kept.since) for kind in _ALL)
        return self._now() - max(kept.since, borne_out) < GOOD_FOR

    def _keep(self, key: Key, look: PackedLook) -> None:
        self._kept[key] = _Kept(look, self._now())
        if len(self._kept) > MAX_LOOKS:
            self._kept.popitem(last=False)


def pack(body: Object) -> bytes:
    """An object in a tenth of the memory that it takes as one; who manages which field, nobody
    reads."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return zlib.compress(msgspec.json.encode({**body, "metadata": metadata}), level=1)


def unpack(packed: bytes) -> Object:
    """The object again."""
    found: Object = msgspec.json.decode(zlib.decompress(packed))
    return found
