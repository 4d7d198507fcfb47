"""The operator as a process of its own, under its own ServiceAccount with the shipped RBAC."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.harness.admin import Admin
from e2e.harness.failure import HarnessError
from e2e.harness.ports import PortLease
from e2e.harness.processes import spawn_bound
from e2e.harness.stack import Stack, service_account_kubeconfig

ROOT = Path(__file__).parents[2]
NAMESPACE = "tonnage-system"
SERVICE_ACCOUNT = "tonnage"
CORRECTIONS = "tonnage-corrections"
USER = f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"

_START_TIMEOUT = 180.0
_STOP_TIMEOUT = 30.0
_POLL_INTERVAL = 0.05
_SHOWN_BYTES = 4_000
# All objects of an installation but the Deployment: the operator runs as a process here.
_INSTALLED_KINDS = {
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def install(admin: Admin) -> None:
    """Apply the CRDs and the shipped ServiceAccount, RBAC and admission policies, as a platform
    team would."""
    for path in sorted((ROOT / "crds").glob("tonnage.dev_*.yaml")):
        admin.apply(path)
    admin.apply(
        sorted(_installed(admin), key=lambda manifest: str(manifest["kind"]) != "Namespace")
    )
    admin.wait_for("serviceaccounts", SERVICE_ACCOUNT, lambda _: True, NAMESPACE)


def uninstall(admin: Admin) -> None:
    """Take away what `install` made, but for the namespace, and all objects of the CRDs."""
    for path in (ROOT / "crds").glob("tonnage.dev_*.yaml"):
        admin.delete("crd", yaml.safe_load(path.read_text("utf-8"))["metadata"]["name"])
    for manifest in _installed(admin):
        if manifest["kind"] != "Namespace":
            metadata = manifest["metadata"]
            admin.delete(manifest["kind"], metadata["name"], metadata.get("namespace"))


def _installed(admin: Admin) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(admin.kubectl("kustomize", str(ROOT / "manifests" / "base")))
    return [manifest for manifest in documents if manifest["kind"] in _INSTALLED_KINDS]


@dataclass(frozen=True)
class Account:
    """The ServiceAccount that an operator acts as; its Lease is in the same namespace."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """As the audit log has it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


SHIPPED = Account(NAMESPACE, SERVICE_ACCOUNT)


class OperatorProcess:
    """`tonnage run` for a stack; started, stopped and killed by its own process id.

    Corrections of operators of other tests are deleted before it begins, and its own corrections
    when it is closed. `server` is an address on the way to the API server, in place of its own.
    """

    def __init__(
        self,
        stack: Stack,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        account: Account = SHIPPED,
        server: str | None = None,
    ) -> None:
        self._account = account
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "operator.log"
        self._kubeconfig = folder / "operator.kubeconfig"
        self._stack = stack
        self._server = server
        self._lease = PortLease(["operator"])
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
        self._environment |= environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._forget()

    @property
    def address(self) -> str:
        """Where /healthz, /readyz and /metrics answer."""
        return f"127.0.0.1:{self._lease.ports['operator']}"

    @property
    def pid(self) -> int:
        """The process that runs, or ran last."""
        if self._process is None:
            raise HarnessError("the operator was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the process ended, None while it lives."""
        return None if self._process is None else self._process.poll()

    def freeze(self) -> None:
        """Stop it as a machine out of memory does: it does nothing, and does not know of it."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on where it was."""
        self._signal(signal.SIGCONT)

    def start(self) -> None:
        """Start it and return when it is ready."""
        process = self.launch()
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._answers("/readyz"):
            if not self.running:
                raise HarnessError(f"the operator ended with {process.returncode}: {self}")
            if time.monotonic() > deadline:
                self.kill()
                raise HarnessError(f"the operator was not ready in {_START_TIMEOUT:.0f} s: {self}")
            time.sleep(_POLL_INTERVAL)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it, whether or not it becomes ready."""
        if not self._kubeconfig.exists():
            account = self._account
            service_account_kubeconfig(
                self._stack, account.namespace, account.name, self._kubeconfig, self._server
            )
        self._process = spawn_bound(self.command(), self.log, self._environment)
        return self._process

    def readiness(self) -> tuple[int, str]:
        """The status and the text of /readyz; 0 without an answer."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/readyz", timeout=10) as answer:
                return answer.status, str(answer.read().decode())
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()
        except (urllib.error.URLError, OSError):
            return 0, ""

    def command(self) -> list[str]:
        """What starts it: from the work tree, by a kubeconfig of its ServiceAccount."""
        command = [sys.executable, "-P", "-m", "tonnage", "run", f"--listen={self.address}"]
        return [
            *command,
            f"--kubeconfig={self._kubeconfig}",
            f"--namespace={self._account.namespace}",
        ]

    def stop(self) -> int:
        """End it as a kubelet does, with SIGTERM, and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End it as a power cut does, with SIGKILL."""
        return self._end(signal.SIGKILL)

    def close(self) -> None:
        """End it and give its port back."""
        if self.running:
            self.stop()
        self._forget()
        self._lease.release()

    @property
    def leads(self) -> bool:
        """Whether it holds the lease; one that was killed keeps it from the next for 12 s."""
        try:
            return 'leader_election_master_status{name="tonnage"} 1.0' in self.metrics()
        except OSError:  # it does not run
            return False

    def metrics(self) -> str:
        """The text of /metrics."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def log_lines(self) -> list[dict[str, Any]]:
        """The structured lines of its log. The last one may be half written yet."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def _forget(self) -> None:
        admin = Admin(self._stack.kubeconfig, self._stack.kubectl)
        admin.delete("configmaps", CORRECTIONS, self._account.namespace, timeout=None)

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise HarnessError("the operator was never started")
        self._process.send_signal(number)
        return self._process

    def _end(self, number: signal.Signals) -> int:
        process = self._signal(number)
        try:
            return process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT)
            raise HarnessError(
                f"the operator did not end within {_STOP_TIMEOUT:.0f} s of {number.name}: {self}"
            ) from None

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __str__(self) -> str:
        text = self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""
        return f"log {self.log} ends\n{text[-_SHOWN_BYTES:]}"


class RestartedOperator(OperatorProcess):
    """The operator as a kubelet runs it: one that ended since it lost its Lease is started again.

    It loses the Lease where the API server does not answer for eight seconds, as on a machine that
    is shared by several control planes. Whatever else ends it is left to the test to see.
    """

    def __init__(
        self, stack: Stack, folder: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._lock = threading.RLock()
        self._is_wanted = False
        super().__init__(stack, folder, environment=environment)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start it, unless it was started again already."""
        with self._lock:
            self._is_wanted = True
            if self._process is not None and self.running:
                return self._process
            known = self._count_lost()
            process = super().launch()
            threading.Thread(target=self._keep, args=(process, known), daemon=True).start()
            return process

    def _keep(self, process: subprocess.Popen[bytes], known: int) -> None:
        """Start it again whenever it has lost its Lease, which it has `known` times. The thread
        stays as long as the process: the kernel ends with a thread what that has started."""
        while process.wait() and self._count_lost() > known:
            known = self._count_lost()
            with self._lock:
                if not self._is_wanted or self._process is not process:
                    return
                process = super().launch()

    def _count_lost(self) -> int:
        lines = self.log_lines() if self.log.exists() else []
        return sum(line["message"] == "lease lost" for line in lines)

    def _end(self, number: signal.Signals) -> int:
        with self._lock:
            self._is_wanted = False
        return super()._end(number)
