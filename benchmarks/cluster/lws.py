"""The controller of LeaderWorkerSet, a process of its own next to the control plane.

It runs without its webhooks, which would need a certificate and a Service; the benchmark's objects
have what the webhooks would fill in. All else is as it ships: 500 requests a second, 500 at once
(api/config/v1alpha1/defaults.go of v0.7.0), and controller-runtime's workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from e2e.harness.admin import Admin
from e2e.harness.binaries import program_path
from e2e.harness.go_modules import module_folder
from e2e.harness.ports import PortLease
from e2e.harness.processes import end, spawn_bound
from e2e.harness.tools import PROGRAMS

_PROGRAM = "lws-controller"
_NAMESPACE = "lws-system"
_STOP_TIMEOUT = 20.0
_SHOWN_BYTES = 4_000


class LeaderWorkerSetController:
    """Started and ended by its own process id."""

    def __init__(self, admin: Admin, folder: Path) -> None:
        self._admin = admin
        self._folder = folder
        self._lease = PortLease([_PROGRAM])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        if self._process is None:
            raise AssertionError("the controller was never started")
        return self._process.pid

    def start(self) -> None:
        """Define its kind, start it and return when it is ready."""
        tool = PROGRAMS[_PROGRAM]
        self._admin.apply(
            module_folder(tool.name, tool.module)
            / "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "config.yaml"
        config.write_text(json.dumps(_CONFIG), "utf-8")
        address = f"127.0.0.1:{self._lease.ports[_PROGRAM]}"
        command = (
            str(program_path(_PROGRAM)),
            f"--config={config}",
            f"--kubeconfig={self._admin.kubeconfig}",
            "--leader-elect=false",
            f"--health-probe-bind-address={address}",
            "--metrics-bind-address=0",
            "--zap-log-level=error",
        )
        log = self._folder / f"{_PROGRAM}.log"
        self._process = spawn_bound(command, log, {**os.environ, "ENABLE_WEBHOOKS": "false"})
        self._admin.until(
            f"{_PROGRAM} to be ready",
            lambda: _answers(address),
            timeout=60,
            describe=lambda: log.read_text("utf-8", errors="replace")[-_SHOWN_BYTES:],
        )

    def close(self) -> None:
        """End it and give its port back."""
        if self._process is not None:
            end(self._process, _STOP_TIMEOUT)
        self._lease.release()


_CONFIG = {
    "apiVersion": "config.lws.x-k8s.io/v1alpha1",
    "kind": "Configuration",
    "internalCertManagement": {"enable": False},
    "leaderElection": {"leaderElect": False, "resourceNamespace": _NAMESPACE},
}


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
