"""Reads the ConfigMaps with facts of adapters, each at most once a minute for a generation.

An object may have 128 of them, is reconciled many times while its pods start, and the role allows
no watch of ConfigMaps. A new generation is read anew, since a user often applies both together.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tonnage import delays
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import Kind, Object, ObjectReader

MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Size of all ConfigMaps that are kept; those that were read first are dropped first. A user may
name 128 of 1 MiB each in every object."""

_ENTRY_BYTES: Final = 256
"""About what an entry takes in memory besides its text."""


@dataclass(frozen=True, slots=True)
class _Kept:
    body: Object
    read_at: datetime
    size: int


class FactReader:
    """Reads facts from an API server. For one event loop."""

    def __init__(self, api: ObjectReader, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now
        self._kept: OrderedDict[tuple[str, int, str], _Kept] = OrderedDict()
        self._bytes = 0

    def at(self, uid: str, generation: int) -> ObjectReader:
        """The reader for a generation of the object with this uid, whose namespace has the
        ConfigMaps. Other kinds are read live."""
        return _ReaderOfGeneration(self, uid, generation)

    async def get(
        self, uid: str, generation: int, kind: Kind, namespace: str | None, name: str
    ) -> Object:
        """Read one object, of a ConfigMap only its data. Raises ApiError, which is not kept."""
        if kind != CONFIG_MAPS:
            return await self._api.get(kind, namespace, name)
        place, now = (uid, generation, name), self._now()
        kept = self._kept.get(place)
        if kept is not None and now < kept.read_at + timedelta(seconds=delays.ADAPTER_FACTS):
            return kept.body
        data = (await self._api.get(kind, namespace, name)).get("data") or {}
        self._keep(place, _Kept({"data": data}, now, _size_of(data)))
        return {"data": data}

    def _keep(self, place: tuple[str, int, str], read: _Kept) -> None:
        before = self._kept.pop(place, None)
        self._bytes += read.size - (before.size if before else 0)
        self._kept[place] = read
        while self._bytes > MAX_KEPT_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size


def _size_of(data: Mapping[str, str]) -> int:
    """Bytes of memory that the data take, about."""
    entries = sum(len(name) + len(text) + _ENTRY_BYTES for name, text in data.items())
    return _ENTRY_BYTES + entries


@dataclass(frozen=True, slots=True)
class _ReaderOfGeneration:
    reader: FactReader
    uid: str
    generation: int

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        return await self.reader.get(self.uid, self.generation, kind, namespace, name)
