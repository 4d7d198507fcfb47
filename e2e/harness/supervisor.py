"""The one process that owns all servers of a stack, and ends them all.

It ends on SIGTERM, when its owner is gone, when a server dies, or after a
lifetime; and the kernel ends the servers should it be killed itself. So nothing is left behind.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from e2e.harness import credentials
from e2e.harness.binaries import Binaries
from e2e.harness.failure import HarnessError
from e2e.harness.ports import PortLease
from e2e.harness.processes import ProcessId, spawn_bound
from e2e.harness.rest import Access, ApiError, Rest
from e2e.harness.servers import PORTS, Layout, Options, Server, kubeconfig_users, servers
from e2e.nodes import behaviours
from e2e.nodes.container_logs import LogEndpoint
from e2e.nodes.lost_nodes import LostNodes

MARKER = ("kube-system", "tonnage-e2e-stack")  # the ConfigMap that tells one stack from another
_START_TIMEOUT = 240.0
_STOP_GRACE = 0.5  # there is nothing to save: the data of a stack end with it
_PROBE_INTERVAL_MS = 40


class EndedError(Exception):
    """A reason to stop that is no failure: a signal, the owner's end, the lifetime."""


@dataclass
class Watcher:
    """What ends a stack, waited for as file descriptors, so that nothing is polled."""

    deadline: float
    descriptors: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._poller = select.poll()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._watch(reader, "signal")

    def _watch(self, descriptor: int, meaning: str) -> None:
        self.descriptors[descriptor] = meaning
        self._poller.register(descriptor, select.POLLIN)

    def watch_owner(self, pid: int) -> None:
        """End with the owner; an owner that is gone already ends the stack at once."""
        try:
            self._watch(os.pidfd_open(pid), "owner")
        except ProcessLookupError:
            raise EndedError(f"the owner, process {pid}, is gone") from None

    def watch_server(self, name: str, pid: int) -> None:
        """Notice the death of a server at once."""
        self._watch(os.pidfd_open(pid), name)

    def wait(self, milliseconds: float | None = None) -> None:
        """Wait until something ends the stack, and raise; return after `milliseconds` otherwise."""
        left = (self.deadline - time.monotonic()) * 1000
        if left <= 0:
            raise EndedError("the lifetime is over")
        ready = self._poller.poll(left if milliseconds is None else min(left, milliseconds))
        if not ready:
            return
        meaning = self.descriptors[ready[0][0]]
        if meaning == "signal":
            raise EndedError("stopped by a signal")
        if meaning == "owner":
            raise EndedError("the owner is gone")
        raise HarnessError(f"{meaning} ended by itself")


class Supervisor:
    """Start, watch and stop the servers of the stack in one folder."""

    def __init__(self, root: Path, watcher: Watcher, options: Options) -> None:
        self._layout = Layout(root)
        self._options = options
        self._watcher = watcher
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lease: PortLease | None = None
        own = ProcessId.of(os.getpid())
        assert own is not None
        self._state: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "phase": "starting",
            "message": "",
            "supervisor": asdict(own),
            "processes": {},
        }

    def report(self, phase: str, message: str = "") -> None:
        """Publish the state; readers see the old file or the new one, never half of one."""
        self._state |= {"phase": phase, "message": message}
        draft = self._layout.state.with_suffix(".new")
        credentials.write_private(draft, json.dumps(self._state, indent=2) + "\n")
        draft.replace(self._layout.state)

    def start(self, kubelet_log_folder: Path) -> None:
        """Bring up everything, in order, and return when all of it is ready."""
        layout = self._layout
        binaries = Binaries().ensure()
        tokens = self._prepare(binaries["kubectl"])
        self._lease = PortLease(PORTS)
        ports = self._lease.ports
        server_url = f"https://127.0.0.1:{ports['kube-apiserver']}"
        self._state |= {"server": server_url, "ports": ports}
        behaviours.write_kwok_config(layout.root / "kwok.yaml", kubelet_log_folder)
        etcd, apiserver, *others = servers(binaries, layout, ports, self._options)
        self._launch(etcd)
        self._await(etcd)
        self._launch(apiserver)
        authority = self._read_authority()
        self._await(apiserver, authority)
        for name, user in kubeconfig_users().items():
            text = Access(server_url, tokens[user], authority).kubeconfig(user)
            credentials.write_private(layout.kubeconfig_of(name), text)
        for server in others:
            self._launch(server)
        rest = Rest(Access(server_url, tokens[credentials.HARNESS.user], authority))
        LogEndpoint(rest, kubelet_log_folder, layout.pki).start(ports["kubelet"])
        LostNodes(rest).start()
        for server in others:
            self._await(server)
        self._leave_marker(rest)
        admin = Access(server_url, tokens[credentials.ADMIN.user], authority)
        credentials.write_private(layout.kubeconfig, admin.kubeconfig(credentials.ADMIN.user))

    def _prepare(self, kubectl: Path) -> dict[str, str]:
        """Lay out a fresh folder; what an earlier stack left there is not continued."""
        layout = self._layout
        for stale in (layout.root / "etcd", layout.pki, layout.root / "logs"):
            shutil.rmtree(stale, ignore_errors=True)
        for file in (layout.kubeconfig, layout.audit):
            file.unlink(missing_ok=True)
        for folder in (layout.pki, layout.root / "logs", layout.root / "bin"):
            folder.mkdir(mode=0o700, exist_ok=True)
        link = layout.root / "bin" / "kubectl"
        link.unlink(missing_ok=True)
        link.symlink_to(kubectl.resolve())
        credentials.write_signing_key(layout.pki / "service-accounts.key")
        return credentials.write_tokens(layout.pki / "tokens.csv")

    def _launch(self, server: Server) -> None:
        child = spawn_bound(server.command, self._layout.log(server.name))
        self._children[server.name] = child
        identity = ProcessId.of(child.pid)
        if identity is not None:
            self._state["processes"][server.name] = asdict(identity)
        self._watcher.watch_server(server.name, child.pid)
        self.report("starting", f"waiting for {server.name}")

    def _read_authority(self) -> str:
        """Return the certificate that kube-apiserver has signed for itself."""
        path = self._layout.pki / "apiserver.crt"
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            if (self._layout.pki / "apiserver.key").exists():  # written after the certificate
                return path.read_text(encoding="utf-8")
            self._watcher.wait(_PROBE_INTERVAL_MS)
        raise HarnessError(f"kube-apiserver wrote no {path} in {_START_TIMEOUT:.0f} s")

    def _await(self, server: Server, authority: str | None = None) -> None:
        """Wait for a server's health address; its own certificate is all it can be checked by."""
        context = ssl.create_default_context(cadata=authority)
        if authority is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        deadline = time.monotonic() + _START_TIMEOUT
        last = "no answer"
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(server.health, timeout=5, context=context):  # noqa: S310 - loopback
                    return
            except urllib.error.HTTPError as error:
                last = f"{error.code} {error.read().decode('utf-8', 'replace')[-300:]}"
            except OSError as error:
                last = str(error)
            self._watcher.wait(_PROBE_INTERVAL_MS)
        raise HarnessError(f"{server.name} was not ready in {_START_TIMEOUT:.0f} s: {last}")

    def _leave_marker(self, rest: Rest) -> None:
        """Mark the cluster as ours, and wait until pods can be made in it."""
        namespace, name = MARKER
        marker = {"metadata": {"name": name}, "data": {"id": self._state["id"]}}
        rest.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", marker)
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            with suppress(ApiError):
                rest.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
                return
            self._watcher.wait(_PROBE_INTERVAL_MS)
        raise HarnessError("kube-controller-manager made no service account `default`")

    def stop(self) -> None:
        """End all servers: politely for a moment, since etcd and kube-apiserver wait for others."""
        for name in reversed(self._children):
            self._children[name].terminate()
        deadline = time.monotonic() + _STOP_GRACE
        for child in self._children.values():
            try:
                child.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self._lease:
            self._lease.release()

    def last_words(self) -> str:
        """Return the end of the log of a server that has died, which says why."""
        for name, child in self._children.items():
            if child.poll() is not None:
                lines = self._layout.log(name).read_text(errors="replace").splitlines()[-8:]
                return f"; {name} exited {child.returncode}, its last words:\n  " + "\n  ".join(
                    lines
                )
        return ""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.harness.supervisor", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="folder of the stack")
    parser.add_argument("--owner-pid", type=int, default=0, help="end when this process is gone")
    parser.add_argument("--lifetime", type=float, default=4 * 3600, help="seconds to live at most")
    parser.add_argument("--feature", action="append", default=[], help="a feature gate that is on")
    parser.add_argument("--unserved", action="append", default=[], help="a version without its API")
    return parser.parse_args()


def main() -> int:
    """Supervise one stack until something ends it."""
    arguments = _parse()
    lock = (arguments.dir / "lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.stderr.write(f"another supervisor holds {arguments.dir}\n")
        return 2
    watcher = Watcher(time.monotonic() + arguments.lifetime)
    options = Options(tuple(arguments.feature), tuple(arguments.unserved))
    supervisor = Supervisor(arguments.dir, watcher, options)
    phase, message = "failed", "the supervisor broke; its log says where"
    try:
        supervisor.report("starting")
        if arguments.owner_pid:
            watcher.watch_owner(arguments.owner_pid)
        supervisor.start(Path(__file__).parents[1] / "logs")
        supervisor.report("ready")
        while True:
            watcher.wait()
    except EndedError as reason:
        phase, message = "stopped", str(reason)
    except HarnessError as error:
        message = f"{error}{supervisor.last_words()}"
    finally:
        supervisor.stop()
        supervisor.report(phase, message)
    return 0 if phase == "stopped" else 1


if __name__ == "__main__":
    sys.exit(main())
