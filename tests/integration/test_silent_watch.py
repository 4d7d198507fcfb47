"""A running process counts changes that its watch missed, and only those."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.admin import Admin
from e2e.harness.ports import PortLease
from e2e.harness.processes import spawn_bound
from e2e.harness.stack import Stack
from tests.support.load.exposition import Series, read_series

pytestmark = pytest.mark.usefixtures("_installed")

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 180.0
"""Nothing takes so long but on a machine with far more to do than it has cores."""
Launch = Callable[..., "Replica"]


class Replica:
    """A process that lists often; with its metrics."""

    def __init__(self, control_plane: Stack, folder: Path, *flags: str) -> None:
        self._lease = PortLease(["replica"])
        self._address = f"127.0.0.1:{self._lease.ports['replica']}"
        search = os.pathsep.join((str(ROOT / "operator"), str(ROOT)))
        command = [sys.executable, "-P", "-m", "tests.support.faults.impatient_replica", *flags]
        command += [f"--kubeconfig={control_plane.kubeconfig}", f"--listen={self._address}"]
        environment = {**os.environ, "PYTHONPATH": search}
        self.process = spawn_bound(command, folder / "replica.log", environment)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT_SECONDS)
        self._lease.release()

    def series(self) -> Series:
        try:
            url = f"http://{self._address}/metrics"
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
                return read_series(answer.read().decode())
        except OSError:
            return {}

    def value(self, name: str, **labels: str) -> float | None:
        return self.series().get((name, frozenset(labels.items())))

    def missed(self, kind: str) -> float | None:
        return self.value("tonnage_watch_missed_changes_total", kind=kind)

    def counted_after(self, moment: float) -> bool:
        """Whether both lists were read again and counted since then."""
        names = (
            "tonnage_fleet_last_list_timestamp_seconds",
            "tonnage_last_resync_timestamp_seconds",
        )
        return all((self.value(name) or 0.0) > moment for name in names)

    @property
    def listed_at(self) -> float:
        return self.value("tonnage_fleet_last_list_timestamp_seconds") or 0.0


def until(admin: Admin, what: str, holds: Callable[[], object]) -> None:
    admin.until(what, holds, timeout=TIMEOUT_SECONDS)


@pytest.fixture
def launch(control_plane: Stack, admin: Admin, tmp_path: Path) -> Iterator[Launch]:
    replicas: list[Replica] = []

    def start(*flags: str) -> Replica:
        replicas.append(Replica(control_plane, tmp_path, *flags))
        kinds = ("nodes", "pods", "acceleratorpools", "inferencedeployments")
        until(
            admin,
            "every kind to be counted once",
            lambda: all(replicas[-1].missed(kind) is not None for kind in kinds),
        )
        return replicas[-1]

    yield start
    for replica in replicas:
        replica.close()


def test_a_change_that_only_a_list_shows_is_counted_as_missed(launch: Launch, admin: Admin) -> None:
    replica = launch("--deaf-to=nodes")
    assert replica.missed("nodes") == 0.0
    admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "never-heard-of"}})
    until(admin, "the node to be missed", lambda: replica.missed("nodes"))
    admin.delete("nodes", "never-heard-of")
    until(admin, "its end to be missed, too", lambda: (replica.missed("nodes") or 0) >= 2)
    assert replica.missed("inferencedeployments") == 0.0


def test_a_change_that_the_watch_delivers_is_not_counted(
    launch: Launch, admin: Admin, namespace: str
) -> None:
    replica = launch()
    for number in range(5):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"heard-of-{number}"}}
        admin.apply(node)
    admin.apply(
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": "heard-of", "namespace": namespace},
            "spec": {
                "model": {"source": {"huggingFace": {"repo": "example/llama"}}},
                "workload": {"maxModelLen": 4096, "concurrency": 8},
            },
        }
    )
    for number in range(5):
        admin.delete("nodes", f"heard-of-{number}")
    for _ in range(2):  # a count comes after a list, so after the second list the first is counted
        before = replica.listed_at
        until(admin, "both lists again", lambda: replica.counted_after(before))  # noqa: B023 - asked at once
    kinds = ("nodes", "pods", "acceleratorpools", "inferencedeployments")
    assert {kind: replica.missed(kind) for kind in kinds} == dict.fromkeys(kinds, 0.0)
    admin.delete("infd", "heard-of")
