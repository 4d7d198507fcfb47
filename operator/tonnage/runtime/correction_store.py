"""What starts have taught, kept in the ConfigMap `tonnage-corrections` of the operator's namespace.

People may edit it: what they change counts from the next look on, and an entry that cannot be used
keeps its last good value and is told. A lesson counts in the namespace that it was learnt in, and
no namespace takes the room of those that have fewer. Where the ConfigMap cannot be read or written,
lessons are kept as long as the process lives; losing them loses knowledge and nothing else.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tonnage.fit.correction_entries import (
    MAX_ENTRIES,
    NO_ENTRIES,
    ReadEntries,
    read_entries,
    subject_of,
    write_entry,
)
from tonnage.fit.corrections import NOTHING_LEARNT, LearntCorrections, MemoryCorrection
from tonnage.kube.config_map import ConfigMapApi
from tonnage.kube.protocol import ApiError, ConflictError, NotFoundError, Object

_log = logging.getLogger(__name__)

CONFIG_MAP: Final = "tonnage-corrections"
_TRIES: Final = 3
_INVALID: Final = "CorrectionInvalid"
_READING: Final = "ReadingCorrections"


class _Events(Protocol):
    async def record(
        self, regarding: Mapping[str, Any], warning: bool, reason: str, note: str, action: str
    ) -> None: ...


class CorrectionStore:
    """The corrections in force; reads and writes of the ConfigMap come one after the other."""

    def __init__(self, api: ConfigMapApi, events: _Events, accelerators: Collection[str]) -> None:
        self._api = api
        self._events = events
        self._accelerators = accelerators
        self._seen: Object | None = None
        self._entries = NO_ENTRIES
        self._unwritten = NOTHING_LEARNT
        self._turn = asyncio.Lock()
        self._trouble = ""
        self.has_read = False

    def known(self) -> LearntCorrections:
        """All that is known by now."""
        return self._entries.corrections.learn_all(self._unwritten.entries)

    @property
    def invalid(self) -> int:
        """Entries of the ConfigMap that cannot be used."""
        return len(self._entries.problems)

    async def refresh(self) -> None:
        """Look at the ConfigMap, and write what could not be written before. Never raises for the
        API server's refusal: what was known still is."""
        async with self._turn:
            try:
                await self._read()
                if self._unwritten.entries:
                    await self._write()
                self._trouble = ""
            except ApiError as error:
                self._tell_trouble(f"corrections are neither read nor written: {error}")

    async def learn(self, lesson: MemoryCorrection) -> None:
        """Remember the lesson unless what is known is to stay. Never raises for the API server's
        refusal: it is written with the next look then."""
        known = self.known()
        if known.learn(lesson) is known:
            return
        self._unwritten = self._unwritten.learn(lesson)
        async with self._turn:
            try:
                await self._write()
            except ApiError as error:
                self._tell_trouble(f"a correction is kept in memory only: {error}")

    async def _read(self) -> None:
        try:
            self._seen = await self._api.read()
        except NotFoundError:
            self._seen = None
        found = read_entries((self._seen or {}).get("data") or {}, self._accelerators)
        await self._tell_invalid(found.problems)
        self._entries = _with_last_good(found, self._entries)
        self.has_read = True

    async def _write(self) -> None:
        """Put each lesson that is still news into the entry of its key, as the ConfigMap is now.
        Raises ApiError."""
        for _ in range(_TRIES):
            draft = _draft(self._entries, self._unwritten)
            try:
                if draft.changes:
                    self._seen = await self._api.change(self._seen, draft.changes)
            except ConflictError:
                await self._read()
                continue
            self._entries, self._unwritten, self._trouble = draft.entries, draft.left, ""
            return

    async def _tell_invalid(self, problems: Mapping[str, str]) -> None:
        """Each problem once."""
        for name, why in problems.items():
            if self._entries.problems.get(name) == why:
                continue
            kept = (
                "its last good value counts" if name in self._entries.by_name else "it is left out"
            )
            told = f"ConfigMap {CONFIG_MAP}, key {name}: {why}; until that is mended {kept}"
            _log.warning(told)
            if self._seen is not None:
                await self._events.record(self._seen, True, _INVALID, told, _READING)

    def _tell_trouble(self, told: str) -> None:
        """Once, until it is over."""
        if told != self._trouble:
            _log.warning(told)
        self._trouble = told


@dataclass(frozen=True, slots=True)
class _Draft:
    """Entries as they are to be, what has to be written for it, and lessons that have no place."""

    entries: ReadEntries
    changes: Mapping[str, str | None]
    left: LearntCorrections


def _draft(known: ReadEntries, lessons: LearntCorrections) -> _Draft:
    """An entry that cannot be used is its writer's to mend: no lesson goes over it."""
    entries, changes = dict(known.by_name), dict[str, str | None]()
    left: list[MemoryCorrection] = []
    now = known.corrections
    for lesson in lessons.entries:
        if now.learn(lesson) is now:
            continue
        name = known.name_of(lesson)
        full = name not in entries and len(entries) >= MAX_ENTRIES
        oldest = _oldest(entries) if full else None
        if name in known.problems or (full and oldest is None):
            left.append(lesson)
            continue
        if oldest is not None:
            del entries[oldest]
            changes[oldest] = None
        entries[name], changes[name] = lesson, write_entry(lesson)
    return _Draft(ReadEntries(entries, known.problems), changes, LearntCorrections(tuple(left)))


def _with_last_good(found: ReadEntries, before: ReadEntries) -> ReadEntries:
    subjects = set(map(subject_of, found.by_name.values()))
    kept = {
        name: correction
        for name, correction in before.by_name.items()
        if name in found.problems and subject_of(correction) not in subjects
    }
    return ReadEntries({**found.by_name, **kept}, found.problems)


def _oldest(entries: Mapping[str, MemoryCorrection]) -> str | None:
    """The lesson that was learnt first, of the namespace that has most: nobody can push out those
    of others. What counts everywhere is a person's word, and stays."""
    having = Counter(found.namespace for found in entries.values())
    learnt = (
        (-having[found.namespace], str(found.on), name)
        for name, found in entries.items()
        if found.namespace is not None
    )
    return min(learnt, default=(0, "", None))[2]
