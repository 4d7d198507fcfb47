"""What an object costs everybody: the CPU of all processes while objects come, and the requests."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from rich.table import Table

from e2e.audit_log import AuditLog
from e2e.rest import Json
from e2e.scale.usage import cpu_seconds

_SELDOM: Final = 0.1
"""Requests that so few objects need are not of objects: leases, lists now and then."""


@dataclass(slots=True)
class Toll:
    """Of one controller, in all of its rounds: seconds of creates, of CPU by process, and how long
    the API server took for each request, by its verb and resource, until all was settled."""

    objects: int = 0
    seconds: float = 0.0
    cpu_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def creates(self, pids: Mapping[str, int]) -> Iterator[None]:
        """Objects come within this block."""
        started, before = time.monotonic(), {name: cpu_seconds(pid) for name, pid in pids.items()}
        yield
        self.seconds += time.monotonic() - started
        for name, pid in pids.items():
            self.cpu_seconds[name] += cpu_seconds(pid) - before[name]

    @contextmanager
    def requests_for(self, objects: int, log: AuditLog) -> Iterator[None]:
        """So many objects are made and settle within this block."""
        mark = log.mark()
        yield
        self.objects += objects
        for event in log.events(mark):
            if event["verb"] != "watch" and "objectRef" in event:
                self.requests[_what(event)].append(_seconds(event))


def cores_table(tolls: Mapping[str, Toll], rate: float) -> Table:
    """Who uses the machine while objects come."""
    processes = sorted({name for toll in tolls.values() for name in toll.cpu_seconds})
    table = Table("cores in use by", *tolls, title=f"while {rate:g} objects a second come")
    for process in processes:
        cores = [toll.cpu_seconds[process] / toll.seconds for toll in tolls.values()]
        if max(cores) >= 0.005:
            table.add_row(process, *(f"{each:.2f}" for each in cores))
    totals = [sum(toll.cpu_seconds.values()) / toll.seconds for toll in tolls.values()]
    table.add_row("all", *(f"{each:.2f}" for each in totals))
    return table


def requests_table(tolls: Mapping[str, Toll]) -> Table:
    """What everybody asks of the API server for one object, and how long that takes in it."""
    total = Counter[str]()
    for toll in tolls.values():
        total.update({what: len(each) for what, each in toll.requests.items()})
    table = Table("requests an object, median ms", *tolls)
    for what, _ in total.most_common():
        cells = [_cell(toll, what) for toll in tolls.values()]
        if any(cells):
            table.add_row(what, *cells)
    return table


def _cell(toll: Toll, what: str) -> str:
    found = toll.requests[what]
    count = len(found) / toll.objects
    return f"{count:.1f} x {statistics.median(found) * 1e3:.1f}" if count >= _SELDOM else ""


def _what(event: Json) -> str:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return f"{event['verb']} {resource}"


def _seconds(event: Json) -> float:
    asked, answered = event["requestReceivedTimestamp"], event["stageTimestamp"]
    return (datetime.fromisoformat(answered) - datetime.fromisoformat(asked)).total_seconds()
