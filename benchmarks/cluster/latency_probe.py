"""When objects, and what their controllers made of them, first appeared in the watches of one
client: one clock for all controllers. Pure but for the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from benchmarks.cluster.api_client import WatchEvent
from e2e.harness.failure import HarnessError
from e2e.harness.rest import Json

CHANGE_ANNOTATION: Final = "scale.example.org/change"
"""On a pod template: which change of the benchmark it carries."""


class Stage(StrEnum):
    """What a controller does with a new parent object."""

    CHILD = "child"
    SERVICE = "Service"
    STATUS = "status"


class LatencyProbe:
    """Pairs the events of children and Services with those of their parents, by the name in the
    controller's ownerReference. A time is that of the first event, in seconds."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.reached: dict[Stage, dict[str, float]] = {stage: {} for stage in Stage}
        self._progress = asyncio.Event()

    def handle_parent(self, event: WatchEvent) -> None:
        """An event of a parent: its creation, or its first status."""
        name = event.metadata["name"]
        self.created.setdefault(name, event.received_at)
        if has_status(event.metadata):
            self.reached[Stage.STATUS].setdefault(name, event.received_at)
        self._progress.set()

    def handle_child(self, event: WatchEvent) -> None:
        """An event of a child."""
        self._handle_owned(Stage.CHILD, event)

    def handle_service(self, event: WatchEvent) -> None:
        """An event of a Service."""
        self._handle_owned(Stage.SERVICE, event)

    def _handle_owned(self, stage: Stage, event: WatchEvent) -> None:
        if (owner := controller_of(event.metadata)) is not None:
            self.reached[stage].setdefault(owner, event.received_at)
            self._progress.set()

    def delays(self, names: Sequence[str], stage: Stage, until: float) -> list[float]:
        """Seconds from each parent's creation to the stage. A parent that has not reached it counts
        with the time that it has been waiting `until` then, which is less than the truth."""
        times = self.reached[stage]
        return [times.get(name, until) - self.created[name] for name in names]

    def missing(self, names: Collection[str], stages: Collection[Stage]) -> set[str]:
        """Those of these parents that have not reached one of the stages."""
        waiting = set(names) - self.created.keys()
        for stage in stages:
            waiting |= set(names) - self.reached[stage].keys()
        return waiting

    async def wait(
        self, names: Collection[str], stages: Collection[Stage], timeout_seconds: float
    ) -> bool:
        """Wait until these parents have reached all stages; False where some have not in time.
        Raises HarnessError where the watch has not even shown a parent."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.missing(names, stages):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            if unseen := set(names) - self.created.keys():
                raise HarnessError(
                    f"{len(unseen)} of {len(names)} objects were created but never watched,"
                    f" among them {sorted(unseen)[:3]}: is the watch broken?"
                ) from None
            return False
        return True


class ChangeProbe:
    """Pairs the first event of a parent's new generation with the first event of its child that
    carries the change in its pod template. Times are in seconds."""

    def __init__(self, generations: Mapping[str, int], value: str) -> None:
        self.changed: dict[str, float] = {}
        self.carried: dict[str, float] = {}
        self._generations = generations
        self._value = value
        self._progress = asyncio.Event()

    def handle_parent(self, event: WatchEvent) -> None:
        """An event of a parent, with its metadata at least."""
        name, generation = event.metadata["name"], event.metadata["generation"]
        if generation > self._generations.get(name, generation):
            self.changed.setdefault(name, event.received_at)
            self._progress.set()

    def handle_child(self, event: WatchEvent) -> None:
        """An event of a child, as a full object."""
        owner = controller_of(event.metadata)
        if owner is not None and change_of(event.object) == self._value:
            self.carried.setdefault(owner, event.received_at)
            self._progress.set()

    def delays(self, names: Sequence[str], until: float) -> list[float]:
        """Seconds from each parent's new generation to the child that carries it; `until` as in
        `LatencyProbe.delays`."""
        return [self.carried.get(name, until) - self.changed[name] for name in names]

    def missing(self, names: Collection[str]) -> set[str]:
        """Those of these parents whose change no child carries."""
        return set(names) - (self.changed.keys() & self.carried.keys())

    async def wait(self, names: Collection[str], timeout_seconds: float) -> bool:
        """Wait until children carry all changes; False where some do not in time. Raises
        HarnessError where the watch has not even shown a parent's change."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.missing(names):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            if unseen := set(names) - self.changed.keys():
                raise HarnessError(
                    f"{len(unseen)} of {len(names)} changes made no new generation,"
                    f" among them {sorted(unseen)[:3]}"
                ) from None
            return False
        return True


def controller_of(metadata: Json) -> str | None:
    """The name in the ownerReference of the controller, None where there is none."""
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller"):
            return str(owner["name"])
    return None


def has_status(metadata: Json) -> bool:
    """Whether somebody has written the status subresource: its managed fields show it, so that
    the probe need not read the status itself."""
    return any(
        entry.get("subresource") == "status" for entry in metadata.get("managedFields") or []
    )


def change_of(child: Json) -> str | None:
    """Which of the benchmark's changes the pod template of a child carries."""
    template = (child.get("spec") or {}).get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    value: str | None = annotations.get(CHANGE_ANNOTATION)
    return value
