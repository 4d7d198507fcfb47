"""The process around the loop against a real API server: watches, leadership, start and end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.admin import Admin
from e2e.harness.audit_log import AuditLog
from e2e.harness.stack import Stack

pytestmark = pytest.mark.usefixtures("_installed")

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 180.0
"""Nothing takes so long but on a machine with far more to do than it has cores."""
POLL_SECONDS = 0.05


class Replica:
    """One process, and what it logged."""

    def __init__(self, control_plane: Stack, folder: Path, name: str) -> None:
        self._log = folder / f"{name}.log"
        flags = {"kubeconfig": control_plane.kubeconfig, "listen": "127.0.0.1:0"}
        arguments = [part for flag, value in flags.items() for part in (f"--{flag}", str(value))]
        search = os.pathsep.join((str(ROOT / "operator"), str(ROOT)))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.faults.replica", *arguments],
                stderr=log,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": search},
            )

    def lines(self, message: str) -> list[dict[str, Any]]:
        """What it logged with this message; the end of the log may be a part of a line."""
        whole, _, _ = self._log.read_text().rpartition("\n")
        parsed = [json.loads(line) for line in whole.splitlines()]
        return [line for line in parsed if line["message"] == message]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)


Launch = Callable[[str], Replica]


def eventually(what: str, holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"not within {TIMEOUT_SECONDS:g} s: {what}"
        time.sleep(POLL_SECONDS)
    return answer


@pytest.fixture
def launch(control_plane: Stack, tmp_path: Path) -> Iterator[Launch]:
    replicas: list[Replica] = []

    def start(name: str) -> Replica:
        replicas.append(Replica(control_plane, tmp_path, name))
        return replicas[-1]

    yield start
    for replica in replicas:
        if replica.process.poll() is None:
            replica.end()  # and not killed: the next one need not wait for its lease to expire


def llama(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "llama", "namespace": namespace},
        "spec": {
            "model": {"source": {"huggingFace": {"repo": "example/llama"}}},
            "workload": {"maxModelLen": 4096, "concurrency": 8},
        },
    }


def gpu_node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"type": "test"}},
    }


def leads(replica: Replica) -> None:
    eventually("it leads", lambda: replica.lines("leading"))


def await_seen(
    admin: Admin, condition: Callable[[dict[str, Any]], object] = bool
) -> dict[str, Any]:
    """What a reconcile of the object leaves."""
    return admin.wait_for("configmaps", "llama-seen", condition, timeout=TIMEOUT_SECONDS)


def test_object_is_reconciled_and_left_as_its_user_wrote_it(
    launch: Launch, admin: Admin, namespace: str
) -> None:
    leads(launch("a"))
    (before,) = admin.apply(llama(namespace))
    seen = await_seen(admin)["metadata"]["uid"]
    admin.patch("infd", "llama", {"metadata": {"labels": {"team": "chat"}}})
    # Not waited for: the reconcile of the label may make it again before anybody sees it gone.
    admin.delete("configmaps", "llama-seen", timeout=None)
    admin.patch("infd", "llama", {"spec": {"replicas": 2}})
    await_seen(admin, lambda config_map: config_map["metadata"]["uid"] != seen)
    after = admin.get("infd", "llama")
    assert after
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
    assert "finalizers" not in after["metadata"]
    managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
    assert not [each for each in managers if each.startswith(("kopf", "tonnage"))]
    admin.delete("infd", "llama", timeout=TIMEOUT_SECONDS)


def test_watch_writes_nothing(
    launch: Launch, control_plane: Stack, admin: Admin, namespace: str
) -> None:
    mark = admin.audit_mark()
    replica = launch("a")
    leads(replica)
    admin.apply(llama(namespace))
    await_seen(admin)

    def verbs_of_kopf() -> set[str]:
        events = AuditLog(control_plane.audit_log).events(mark)
        return {event["verb"] for event in events if event.get("userAgent", "").startswith("kopf/")}

    # The reconcile may follow the list of the operator's own, before kopf watches.
    eventually("kopf watches", lambda: "watch" in verbs_of_kopf())
    replica.end()
    assert verbs_of_kopf() == {"get", "list", "watch"}


def test_fleet_follows_nodes_that_come_and_go(launch: Launch, admin: Admin) -> None:
    replica = launch("a")
    leads(replica)
    eventually("the fleet is logged", lambda: replica.lines("fleet"))
    admin.apply(gpu_node("watched-node"))
    eventually("the node came", lambda: "watched-node" in replica.lines("fleet")[-1]["nodes"])
    admin.delete("nodes", "watched-node")
    eventually("the node went", lambda: "watched-node" not in replica.lines("fleet")[-1]["nodes"])


def test_a_signal_ends_the_process_with_code_0_and_releases_the_lease(
    launch: Launch, admin: Admin
) -> None:
    replica = launch("a")
    leads(replica)
    assert replica.end() == 0
    lease = admin.get("lease", "tonnage", "tonnage-system")
    assert lease
    assert lease["spec"]["holderIdentity"] == ""


def test_standby_takes_over_when_the_leader_ends(
    launch: Launch, admin: Admin, namespace: str
) -> None:
    first = launch("a")
    leads(first)
    second = launch("b")
    admin.apply(llama(namespace))
    await_seen(admin)
    assert second.lines("leading") == []
    assert second.lines("reconciled") == []
    assert first.end() == 0
    leads(second)
    eventually("it knows the ledger", lambda: second.lines("primed"))
    eventually(
        "it looks at everything",
        lambda: any(line["key"] == f"{namespace}/llama" for line in second.lines("reconciled")),
    )


def test_frozen_leader_is_replaced_and_writes_nothing_when_it_resumes(
    launch: Launch, admin: Admin, namespace: str
) -> None:
    first = launch("a")
    leads(first)
    second = launch("b")
    first.process.send_signal(signal.SIGSTOP)
    leads(second)
    admin.apply(llama(namespace))
    await_seen(admin)
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(TIMEOUT_SECONDS) == 1
    writing = [line for line in first.lines("reconciled") if line["writes"]]
    assert [line for line in writing if line["key"] == f"{namespace}/llama"] == []


def test_lost_lease_ends_the_process_with_a_failure(launch: Launch, admin: Admin) -> None:
    replica = launch("a")
    leads(replica)
    change = {"spec": {"holderIdentity": "somebody else"}}
    admin.patch("lease", "tonnage", change, "tonnage-system")
    assert replica.process.wait(TIMEOUT_SECONDS) == 1
    assert replica.lines("lease lost")
    admin.patch("lease", "tonnage", {"spec": {"holderIdentity": ""}}, "tonnage-system")


@contextmanager
def without_pools(admin: Admin) -> Iterator[None]:
    """The API server lacks the kind of the pools; other tests need it, however this one ends."""
    admin.delete("crd", "acceleratorpools.tonnage.dev", timeout=TIMEOUT_SECONDS)
    try:
        yield
    finally:
        admin.apply(ROOT / "crds" / "tonnage.dev_acceleratorpools.yaml")


def waits(replica: Replica) -> None:
    eventually("it waits", lambda: replica.lines("waiting for the kinds of tonnage.dev"))


def test_missing_definition_is_waited_for(launch: Launch, admin: Admin) -> None:
    with without_pools(admin):
        replica = launch("a")
        waits(replica)
        assert replica.lines("leading") == []
    leads(replica)
    assert replica.end() == 0


def test_a_signal_ends_a_waiting_process_with_code_0(launch: Launch, admin: Admin) -> None:
    with without_pools(admin):
        replica = launch("a")
        waits(replica)
        assert replica.end() == 0
