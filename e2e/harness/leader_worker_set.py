"""The controller of LeaderWorkerSet, a process of its own next to the control plane.

With the keys of a stack it serves its webhooks, too, which label the pods of a group and tell them
their place; without them an object has to have what the webhooks would fill in. All else is as it
ships: 500 requests a second, 500 at once (api/config/v1alpha1/defaults.go of v0.7.0), and
controller-runtime's workers.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

import yaml

from e2e.harness.admin import Admin
from e2e.harness.binaries import program_path
from e2e.harness.failure import HarnessError
from e2e.harness.go_modules import module_folder
from e2e.harness.ports import PortLease
from e2e.harness.processes import end, spawn_bound
from e2e.harness.rest import Json
from e2e.harness.tools import PROGRAMS

_PROGRAM = "lws-controller"
_WEBHOOK = "lws-webhook"
_NAMESPACE = "lws-system"
# The plural and the group of each. Without any of them, the controller ends after two minutes.
_CRDS = (
    ("leaderworkersets", "leaderworkerset.x-k8s.io"),
    ("disaggregatedsets", "disaggregatedset.x-k8s.io"),
)
_CRD_FOLDER = "config/crd/bases"
_WEBHOOKS_FILE = "config/webhook/manifests.yaml"
_STOP_TIMEOUT = 20.0
_SHOWN_BYTES = 4_000


class LeaderWorkerSetController:
    """Started and ended by its own process id. `pki` is the folder with the keys of a stack."""

    def __init__(self, admin: Admin, folder: Path, pki: Path | None = None) -> None:
        self._admin = admin
        self._folder = folder
        self._pki = pki
        self._lease = PortLease([_PROGRAM, _WEBHOOK])
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LeaderWorkerSetController:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.require_running()
        finally:
            self.uninstall()
            self.close()

    def require_running(self) -> None:
        """Raise HarnessError where the controller has ended by itself, with its last words."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise HarnessError(f"{_PROGRAM} ended with {code}:\n{self._last_words()}")

    @property
    def pid(self) -> int:
        """Its process."""
        if self._process is None:
            raise AssertionError("the controller was never started")
        return self._process.pid

    def start(self) -> None:
        """Define its kinds, start it and return when it is ready."""
        tool = PROGRAMS[_PROGRAM]
        source = module_folder(tool.name, tool.module)
        for plural, group in _CRDS:
            self._admin.apply(source / _CRD_FOLDER / f"{group}_{plural}.yaml")
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "config.yaml"
        config.write_text(json.dumps(self._configuration()), "utf-8")
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
        has_webhooks = "true" if self._pki else "false"
        self._process = spawn_bound(
            command, self._log, {**os.environ, "ENABLE_WEBHOOKS": has_webhooks}
        )
        self._admin.until(
            f"{_PROGRAM} to be ready",
            lambda: _answers(address),
            describe=self._last_words,
        )
        for webhooks in self._webhooks(source):
            self._admin.apply(webhooks)

    def uninstall(self) -> None:
        """Delete its webhooks and its kinds, with all objects."""
        for webhooks in self._webhooks(module_folder("lws", PROGRAMS[_PROGRAM].module)):
            self._admin.delete(f"{webhooks['kind'].lower()}s", webhooks["metadata"]["name"])
        for plural, group in _CRDS:
            self._admin.delete("customresourcedefinitions", f"{plural}.{group}")

    def close(self) -> None:
        """End it and give its ports back."""
        if self._process is not None:
            end(self._process, _STOP_TIMEOUT)
        self._lease.release()

    @property
    def _log(self) -> Path:
        return self._folder / f"{_PROGRAM}.log"

    def _last_words(self) -> str:
        return self._log.read_text("utf-8", errors="replace")[-_SHOWN_BYTES:]

    def _configuration(self) -> Json:
        configuration: Json = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False, "resourceNamespace": _NAMESPACE},
        }
        if self._pki is not None:
            certificates = self._folder / "certificates"
            certificates.mkdir(exist_ok=True)
            shutil.copy(self._pki / "apiserver.crt", certificates / "tls.crt")
            shutil.copy(self._pki / "apiserver.key", certificates / "tls.key")
            configuration["webhook"] = {
                "port": self._lease.ports[_WEBHOOK],
                "host": "127.0.0.1",
                "certDir": str(certificates),
            }
        return configuration

    def _webhooks(self, source: Path) -> list[Json]:
        """Its webhook configurations as they ship, on loopback in place of a Service."""
        if self._pki is None:
            return []
        certificate = base64.b64encode((self._pki / "apiserver.crt").read_bytes()).decode()
        documents: list[Json] = list(yaml.safe_load_all((source / _WEBHOOKS_FILE).read_text()))
        for document in documents:
            document["metadata"]["name"] = f"lws-{document['metadata']['name']}"
            for webhook in document["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                url = f"https://127.0.0.1:{self._lease.ports[_WEBHOOK]}{path}"
                webhook["clientConfig"] = {"url": url, "caBundle": certificate}
        return documents


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
