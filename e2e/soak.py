"""The operator for an hour or more of churn, with a lost watch each minute: `make soak`.

Objects, pods and nodes come and go at random, some of them while the watches are muted; each minute
the API server ends all watches as outdated (410). Then changes stop for a moment, in which the
operator has to know what the cluster has and nothing else, and one line tells how large it is. It
ends with an error when that grows beyond what the first ten minutes show.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from e2e.doubles.fault_proxy import FaultProxy
from e2e.harness.admin import Admin
from e2e.harness.failure import HarnessError, run_cli
from e2e.harness.operator_process import OperatorProcess, install
from e2e.harness.rest import Json
from e2e.harness.stack import Stack, down, up
from e2e.models import inference
from e2e.nodes.fleet import apply_fleet
from tests.support.load.exposition import Series, read_series
from tonnage.fleet.nodes.pod import read_gpu_pod

BASELINE_MINUTES = 10
MORE_BYTES = 1.10
"""Resident memory may be so many times the most of the first ten minutes: the allocator's play."""

MORE_TASKS = 1.25
"""Tasks likewise: kopf has one for each object that changed in the last seconds."""

REST_SECONDS = 90.0
"""A list puts right what the watches missed within some seconds; the rest is for others."""

_OBJECTS = 12
_KINDS = ("nodes", "pods", "inferencedeployments")
_MODELS = ("llama-3.1-8b", "llama-3.3-70b")


@dataclass(frozen=True)
class Reading:
    """The operator at rest, at the end of a minute; `ghosts` is what it knows and is no more."""

    minute: int
    rss_bytes: int
    tasks: int
    depth: int
    ghosts: int
    unknown: int
    reconciles: int

    def __str__(self) -> str:
        return (
            f"minute {self.minute:3}: {self.rss_bytes / 2**20:6.1f} MiB, {self.tasks:3} tasks,"
            f" {self.ghosts} ghosts, {self.unknown} unknown, queue {self.depth},"
            f" {self.reconciles} reconciles"
        )


class Churn:
    """What goes on in the cluster."""

    def __init__(self, admin: Admin, stack: Stack, chance: random.Random) -> None:
        self._admin = admin
        self._access = stack.access
        self._chance = chance
        self._made = 0
        self._nodes = 6
        self._set_fleet()

    def go_on(self, seconds: float) -> None:
        """One thing after the other for so long."""
        until = time.monotonic() + seconds
        acts: list[Callable[[], None]] = [self._create, self._change, self._delete, self._lose_pod]
        while time.monotonic() < until:
            self._chance.choices([*acts, self._set_fleet], [8, 3, 3, 4, 1])[0]()
            time.sleep(self._chance.uniform(0, 0.5))  # churn has a rate, and waits for nothing

    def lose_much(self) -> None:
        """Delete objects while watches are muted."""
        for _ in range(3):
            self._delete()
            self._lose_pod()
        self._set_fleet()

    def _create(self) -> None:
        if len(self._names()) < _OBJECTS:
            self._made += 1
            self._apply(f"churn-{self._made}")

    def _change(self) -> None:
        for name in self._some(self._names()):
            self._apply(name)

    def _delete(self) -> None:
        for name in self._some(self._names()):
            self._admin.delete("infd", name, timeout=None)

    def _lose_pod(self) -> None:
        for pod in self._some([pod["metadata"]["name"] for pod in self._admin.items("pods")]):
            self._admin.delete("pods", pod, timeout=None)

    def _set_fleet(self) -> None:
        """Another number of nodes; nodes that go take their pods with them."""
        self._nodes = self._chance.choice([size for size in (4, 5, 6, 7, 8) if size != self._nodes])
        half, more = divmod(self._nodes, 2)
        amd = {"name": "mi300x", "count": half + more, "accelerator": "mi300x", "gpusPerNode": 8}
        nvidia = {"name": "h100", "count": half, "accelerator": "h100-sxm-80gb", "gpusPerNode": 8}
        apply_fleet(self._access, {"groups": [amd, nvidia]}, wait=False, prune=True)

    def _apply(self, name: str) -> None:
        length = self._chance.choice([4096, 8192, 16384])
        self._admin.apply(inference(name, self._chance.choice(_MODELS), max_model_len=length))

    def _names(self) -> list[str]:
        return [model["metadata"]["name"] for model in self._admin.items("infd")]

    def _some(self, names: list[str]) -> list[str]:
        return self._chance.sample(names, min(1, len(names)))


class Soak:
    """The whole of it."""

    def __init__(self, admin: Admin, operator: OperatorProcess, proxy: FaultProxy) -> None:
        self._admin = admin
        self._operator = operator
        self._proxy = proxy

    def minutes(self, churn: Churn, count: int) -> Iterator[Reading]:
        """A reading at the end of each minute. Raises HarnessError when no rest comes."""
        for minute in range(1, count + 1):
            ends = time.monotonic() + 60
            churn.go_on(35)
            self._proxy.mute_watches()
            churn.lose_much()
            self._proxy.end_watches(410)
            churn.go_on(5)
            yield self._at_rest(minute)
            time.sleep(max(0.0, ends - time.monotonic()))  # a minute is a minute

    def _at_rest(self, minute: int) -> Reading:
        last: list[Reading] = []

        def rests() -> Reading | None:
            last[:] = [self._read(minute)]
            reading = last[0]
            return None if reading.ghosts or reading.unknown or reading.depth else reading

        return self._admin.until(
            "the operator to know what there is, and nothing else",
            rests,
            timeout=REST_SECONDS,
            describe=lambda: f"{last[0]} {self._known()} {self._present()}",
        )

    def _read(self, minute: int) -> Reading:
        series = read_series(self._operator.metrics())
        known, present = self._known(), self._present()
        more = [known[kind] - present[kind] for kind in _KINDS]
        return Reading(
            minute,
            rss_bytes=_total(series, "process_resident_memory_bytes"),
            tasks=_total(series, "tonnage_event_loop_tasks"),
            depth=_total(series, "workqueue_depth"),
            ghosts=sum(each for each in more if each > 0),
            unknown=-sum(each for each in more if each < 0),
            reconciles=_total(series, "controller_runtime_reconcile_total"),
        )

    def _known(self) -> dict[str, int]:
        series = read_series(self._operator.metrics())
        name = "tonnage_known_objects"
        return {kind: int(series[name, frozenset({("kind", kind)})]) for kind in _KINDS}

    def _present(self) -> dict[str, int]:
        by_kind: dict[str, list[Json]] = {
            kind: self._admin.items(kind, everywhere=True) for kind in _KINDS
        }
        by_kind["pods"] = [pod for pod in by_kind["pods"] if read_gpu_pod(pod) is not None]
        return {kind: len(items) for kind, items in by_kind.items()}


def _total(series: Series, name: str) -> int:
    return int(sum(value for (key, _), value in series.items() if key == name))


def check_growth(readings: list[Reading]) -> str:
    """What grew and how far it may. Raises HarnessError when it grew beyond that."""
    first, rest = readings[:BASELINE_MINUTES], readings[BASELINE_MINUTES:]
    most_bytes = MORE_BYTES * max(each.rss_bytes for each in first)
    most_tasks = int(MORE_TASKS * max(each.tasks for each in first))
    for each in rest:
        if each.rss_bytes > most_bytes or each.tasks > most_tasks:
            raise HarnessError(
                f"{each}: expected at most {most_bytes / 2**20:.1f} MiB and {most_tasks} tasks"
            )
    return f"at most {most_bytes / 2**20:.1f} MiB and {most_tasks} tasks in {len(readings)} minutes"


def _run(minutes: int, console: Console, ends: ExitStack) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tonnage-soak-"))
    ends.callback(shutil.rmtree, folder, ignore_errors=True)
    stack = up(folder / "stack", owner_pid=os.getpid(), lifetime=60 * minutes + 3600)
    ends.callback(down, stack.root)
    admin = Admin(stack.kubeconfig, stack.kubectl)
    install(admin)
    ends.enter_context(admin.fresh_namespace("soak"))
    proxy = ends.enter_context(FaultProxy(stack.access))
    operator = OperatorProcess(stack, folder / "operator", server=proxy.url)
    ends.callback(operator.close)
    operator.start()
    admin.until("the operator to lead", lambda: operator.leads)
    seed = random.randrange(2**32)  # noqa: S311 - printed, so that a run can be repeated
    console.print(f"{minutes} minutes, seed {seed}")
    readings: list[Reading] = []
    churn = Churn(admin, stack, random.Random(seed))  # noqa: S311 - no secret
    for reading in Soak(admin, operator, proxy).minutes(churn, minutes):
        console.print(str(reading))
        readings.append(reading)
    console.print(check_growth(readings))


def main() -> int:
    """Run for as long as was asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=60, help="how long (default 60)")
    arguments = parser.parse_args()
    with ExitStack() as ends:
        _run(arguments.minutes, Console(soft_wrap=True, highlight=False), ends)
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
