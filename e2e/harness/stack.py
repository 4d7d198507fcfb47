"""Start, stop and describe stacks: `python -m e2e.harness.stack up --dir DIR`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from e2e.harness.binaries import Binaries, progress
from e2e.harness.credentials import write_private
from e2e.harness.failure import HarnessError, run_cli
from e2e.harness.processes import ProcessId
from e2e.harness.rest import Access, Rest
from e2e.harness.servers import Layout, Options
from e2e.harness.supervisor import MARKER

_ROOT = Path(__file__).parents[2]
_START_TIMEOUT = 600.0
_STOP_TIMEOUT = 60.0
_READ_INTERVAL = 0.05


@dataclass(frozen=True)
class Stack:
    """One running control plane, known by its folder."""

    root: Path

    @property
    def layout(self) -> Layout:
        """The stack's files."""
        return Layout(self.root)

    @property
    def kubeconfig(self) -> Path:
        """An admin's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def kubectl(self) -> Path:
        """The kubectl of the servers' version."""
        return self.root / "bin" / "kubectl"

    @property
    def audit_log(self) -> Path:
        """One JSON line for every answered request (level Metadata)."""
        return self.layout.audit

    @property
    def state(self) -> dict[str, Any]:
        """What the supervisor last said: id, phase, message, server, ports, processes."""
        try:
            state: dict[str, Any] = json.loads(self.layout.state.read_text(encoding="utf-8"))
        except OSError:
            raise HarnessError(
                f"{self.root} holds no stack (no state.json); start one with "
                f"`python -m e2e.harness.stack up --dir {self.root}`"
            ) from None
        return state

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self.state["server"])

    @property
    def access(self) -> Access:
        """How an admin reaches it."""
        return Access.load(self.kubeconfig)

    @property
    def supervisor(self) -> ProcessId:
        """The process that owns the stack."""
        return ProcessId(**self.state["supervisor"])

    @property
    def processes(self) -> dict[str, ProcessId]:
        """All processes of the stack by name, the supervisor included."""
        state = self.state
        servers = {name: ProcessId(**entry) for name, entry in state["processes"].items()}
        return {"supervisor": ProcessId(**state["supervisor"]), **servers}

    def running(self) -> bool:
        """Tell whether the stack is ready and its supervisor alive."""
        return bool(self.state["phase"] == "ready" and self.supervisor.alive())


def up(
    root: Path,
    *,
    owner_pid: int = 0,
    lifetime: float = 4 * 3600,
    console: Console | None = None,
    options: Options | None = None,
) -> Stack:
    """Start a stack in `root` and return when all of it is ready."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    stack = Stack(root)
    if stack.layout.state.exists() and stack.supervisor.alive():
        raise HarnessError(
            f"a stack runs in {root} already (supervisor {stack.supervisor.pid}); use it, or end "
            f"it with `python -m e2e.harness.stack down --dir {root}`"
        )
    with progress(console or Console(stderr=True)) as announce:
        Binaries().ensure(announce=announce)
    stack.layout.state.unlink(missing_ok=True)
    _await_ready(stack, _spawn_supervisor(root, owner_pid, lifetime, options or Options()))
    return stack


def _spawn_supervisor(
    root: Path, owner_pid: int, lifetime: float, options: Options
) -> subprocess.Popen[bytes]:
    """Start the supervisor in a session of its own, so that Ctrl-C in the shell spares it."""
    command = [sys.executable, "-m", "e2e.harness.supervisor", f"--dir={root}"]
    command += [f"--owner-pid={owner_pid}", f"--lifetime={lifetime}"]
    command += [f"--feature={name}" for name in options.features]
    command += [f"--unserved={version}" for version in options.unserved]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with (root / "supervisor.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _await_ready(stack: Stack, supervisor: subprocess.Popen[bytes]) -> None:
    """Wait until the supervisor reports ready; tell its own reason when it does not."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        ended = _ended(supervisor)
        phase = stack.state["phase"] if stack.layout.state.exists() else "starting"
        if phase == "ready":
            return
        if ended:
            message = stack.state["message"] if stack.layout.state.exists() else "no state written"
            raise HarnessError(
                f"the stack in {stack.root} did not start: {message} "
                f"(logs: {stack.root / 'logs'}, {stack.root / 'supervisor.log'})"
            )
    supervisor.terminate()
    raise HarnessError(f"the stack in {stack.root} was not ready in {_START_TIMEOUT:.0f} s")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for the end of a process; so the loop around it needs no sleep."""
    try:
        process.wait(_READ_INTERVAL)
    except subprocess.TimeoutExpired:
        return False
    return True


def down(root: Path) -> str:
    """End the stack in `root`, and nothing else; return what was done."""
    stack = Stack(root.absolute())
    processes = stack.processes
    supervisor = processes["supervisor"]
    if not supervisor.alive():
        return f"the stack in {stack.root} is not running"
    supervisor.send(signal.SIGTERM)
    if not supervisor.wait_gone(_STOP_TIMEOUT):
        supervisor.send(signal.SIGKILL)  # the kernel ends the servers with it
    for name, process in processes.items():
        if not process.wait_gone(_STOP_TIMEOUT):
            raise HarnessError(f"{name} (process {process.pid}) of {stack.root} did not end")
    return f"ended {len(processes)} processes of {stack.root}"


def service_account_kubeconfig(
    stack: Stack, namespace: str, name: str, path: Path, server: str | None = None
) -> Path:
    """Write a kubeconfig that acts as an existing ServiceAccount, with a token valid for 12 h.

    `server` is an address on the way to the API server, such as a proxy's; its own by default.
    """
    access = stack.access
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 12 * 3600},
    }
    answer = Rest(access).request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request
    )
    account = Access(server or access.server, answer["status"]["token"], access.authority)
    write_private(path, account.kubeconfig(f"system:serviceaccount:{namespace}:{name}"))
    return path


def check_ours(access: Access, stack_id: str | None = None) -> None:
    """Refuse an API server that is not ours: fake nodes do harm in a real cluster."""
    namespace, name = MARKER
    what = f"the API server {access.server}"
    remedy = "use the kubeconfig that `python -m e2e.harness.stack up` wrote"
    try:
        marker = Rest(access, timeout=10).request(
            "GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        )
    except HarnessError as error:
        raise HarnessError(f"{what} is not a stack of this harness ({error}); {remedy}") from None
    actual_id = marker["data"].get("id")
    if stack_id is not None and actual_id != stack_id:
        raise HarnessError(f"{what} is stack {actual_id}, expected {stack_id}; {remedy}")


def status(root: Path) -> str:
    """Describe the stack in `root`."""
    stack = Stack(root.absolute())
    state, alive = stack.state, stack.supervisor.alive()
    lines = [f"stack {state['id']}: {state['phase'] if alive else 'not running'}"]
    if state["message"]:
        lines.append(f"  {state['message']}")
    if alive:
        lines += [f"  server      {state.get('server', '-')}", f"  kubeconfig  {stack.kubeconfig}"]
        lines += [f"  {name:<24}{process.pid}" for name, process in stack.processes.items()]
    return "\n".join(lines)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.harness.stack",
        description="A real control plane on loopback ports: etcd, kube-apiserver, "
        "kube-controller-manager, kube-scheduler and KWOK.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("up", "start a stack and return when it is ready"),
        ("down", "end a stack and nothing else"),
        ("status", "say what runs"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--dir", type=Path, required=True, help="the stack's folder")
        if name == "up":
            command.add_argument("--owner-pid", type=int, default=0, help="end with this process")
            command.add_argument(
                "--lifetime", type=float, default=4 * 3600, help="seconds to live (default 4 h)"
            )
    return parser.parse_args()


def main() -> int:
    """Run one command."""
    arguments = _parse()
    console = Console(soft_wrap=True, highlight=False)
    if arguments.command == "up":
        started = time.monotonic()
        stack = up(arguments.dir, owner_pid=arguments.owner_pid, lifetime=arguments.lifetime)
        console.print(f"ready in {time.monotonic() - started:.1f} s: {stack.server}")
        console.print(f"  export KUBECONFIG={stack.kubeconfig}")
        console.print(f"  {stack.kubectl} get nodes")
    elif arguments.command == "down":
        console.print(down(arguments.dir))
    else:
        console.print(status(arguments.dir))
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
