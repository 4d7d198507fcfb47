"""Memory corrections, stored in ConfigMap `tonnage-corrections` of the operator's namespace.

Users may edit the ConfigMap: the next read applies their edits, and an invalid entry keeps its last
valid value and is reported. A correction applies in the namespace in which it was measured, and no
namespace displaces the corrections of namespaces that have fewer. If the operator cannot read or
write the ConfigMap, it keeps corrections in memory; to lose them costs only accuracy.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.api.names import CORRECTIONS_CONFIG_MAP
from tonnage.fit.calibration.corrections import NO_CORRECTIONS, KnownCorrections, MemoryCorrection
from tonnage.fit.calibration.entries import (
    MAX_ENTRIES,
    NO_ENTRIES,
    ReadEntries,
    read_entries,
    subject_of,
    write_entry,
)
from tonnage.kube.events import RecordEvent
from tonnage.kube.protocol import ApiError, ConflictError, NotFoundError, Object
from tonnage.kube.single_fields import ConfigMapEntries

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS: Final = 3
_EVENT_REASON: Final = "CorrectionInvalid"
_EVENT_ACTION: Final = "ReadingCorrections"


class CorrectionStore:
    """The corrections in force. It never reads and writes the ConfigMap at the same time."""

    def __init__(
        self, api: ConfigMapEntries, record_event: RecordEvent, accelerators: Collection[str]
    ) -> None:
        self._api = api
        self._record_event = record_event
        self._accelerators = accelerators
        self._config_map: Object | None = None
        self._entries = NO_ENTRIES
        self._unwritten = NO_CORRECTIONS
        self._lock = asyncio.Lock()
        self._last_failure = ""
        self.has_read = False

    def known(self) -> KnownCorrections:
        """All corrections, whether or not the ConfigMap has them yet."""
        return self._entries.corrections.learn_all(self._unwritten.entries)

    @property
    def invalid(self) -> int:
        """How many entries of the ConfigMap are invalid."""
        return len(self._entries.problems)

    async def refresh(self) -> None:
        """Read the ConfigMap, and write the corrections that an earlier write could not store.

        On an ApiError it keeps the known corrections and raises nothing.
        """
        async with self._lock:
            try:
                await self._read()
                if self._unwritten.entries:
                    await self._write()
                self._last_failure = ""
            except ApiError as error:
                self._log_failure(
                    f"cannot read or write ConfigMap {CORRECTIONS_CONFIG_MAP}: {error}"
                )

    async def add(self, correction: MemoryCorrection) -> None:
        """Add the correction unless a known one takes precedence.

        On an ApiError it raises nothing, and the next refresh writes the correction.
        """
        known = self.known()
        if known.with_correction(correction) is known:
            return
        self._unwritten = self._unwritten.with_correction(correction)
        async with self._lock:
            try:
                await self._write()
            except ApiError as error:
                self._log_failure(f"cannot write a correction, keeping it in memory: {error}")

    async def _read(self) -> None:
        try:
            self._config_map = await self._api.read()
        except NotFoundError:
            self._config_map = None
        entries = read_entries((self._config_map or {}).get("data") or {}, self._accelerators)
        self._report_invalid(entries.problems)
        self._entries = _keep_last_valid(entries, self._entries)
        self.has_read = True

    async def _write(self) -> None:
        """Write each unwritten correction into the entry of its key; on a conflict, read and try
        again. Raises ApiError."""
        for _ in range(_MAX_ATTEMPTS):
            planned = _plan_write(self._entries, self._unwritten)
            try:
                if planned.changes:
                    self._config_map = await self._api.change(self._config_map, planned.changes)
            except ConflictError:
                await self._read()
                continue
            self._entries, self._unwritten = planned.entries, planned.unwritten
            self._last_failure = ""
            return

    def _report_invalid(self, problems: Mapping[str, str]) -> None:
        """Log each new problem and record an Event for it."""
        for name, problem in problems.items():
            if self._entries.problems.get(name) == problem:
                continue
            effect = (
                "using its last valid value" if name in self._entries.by_name else "ignoring it"
            )
            subject = f"ConfigMap {CORRECTIONS_CONFIG_MAP}, key {name}"
            message = f"{subject}: {problem}; {effect} until it is fixed"
            _log.warning(message)
            if self._config_map is not None:
                self._record_event(self._config_map, True, _EVENT_REASON, message, _EVENT_ACTION)

    def _log_failure(self, message: str) -> None:
        """Log the failure unless it is the same as the last one."""
        if message != self._last_failure:
            _log.warning(message)
        self._last_failure = message


@dataclass(frozen=True, slots=True)
class _PlannedWrite:
    """The entries after the write, its changes, and the corrections for which no entry is free."""

    entries: ReadEntries
    changes: Mapping[str, str | None]
    unwritten: KnownCorrections


def _plan_write(known: ReadEntries, new: KnownCorrections) -> _PlannedWrite:
    """Plan entries for the new corrections. An invalid entry is never overwritten: its author has
    to fix it."""
    entries, changes = dict(known.by_name), dict[str, str | None]()
    unwritten: list[MemoryCorrection] = []
    current = known.corrections
    for correction in new.entries:
        if current.with_correction(correction) is current:
            continue
        name = known.name_of(correction)
        is_full = name not in entries and len(entries) >= MAX_ENTRIES
        oldest = _find_oldest(entries) if is_full else None
        if name in known.problems or (is_full and oldest is None):
            unwritten.append(correction)
            continue
        if oldest is not None:
            del entries[oldest]
            changes[oldest] = None
        entries[name], changes[name] = correction, write_entry(correction)
    remaining = KnownCorrections(tuple(unwritten))
    return _PlannedWrite(ReadEntries(entries, known.problems), changes, remaining)


def _keep_last_valid(read: ReadEntries, before: ReadEntries) -> ReadEntries:
    subjects = set(map(subject_of, read.by_name.values()))
    kept = {
        name: correction
        for name, correction in before.by_name.items()
        if name in read.problems and subject_of(correction) not in subjects
    }
    return ReadEntries({**read.by_name, **kept}, read.problems)


def _find_oldest(entries: Mapping[str, MemoryCorrection]) -> str | None:
    """The oldest correction of the namespace that has most, so that no namespace displaces those of
    others. A correction of all namespaces was written by a user, and stays."""
    counts = Counter(correction.namespace for correction in entries.values())
    candidates = (
        (-counts[correction.namespace], str(correction.on), name)
        for name, correction in entries.items()
        if correction.namespace is not None
    )
    return min(candidates, default=(0, "", None))[2]
