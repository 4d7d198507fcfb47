"""A real vLLM, run as the container that Tonnage renders would run it, but on a CPU.

It gets the rendered command, arguments and variables, is the first process of a PID namespace, and
no process of it outlives its test. What a node would add is added here: a port of its
own after the rendered one, since loopback is shared, and a folder in the place of the cache volume.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from e2e.harness.failure import HarnessError
from e2e.harness.ports import PortLease
from e2e.harness.processes import ProcessId, spawn_bound

_ENTRYPOINT = ("vllm", "serve")
_CACHE_VOLUME = "/cache"
_POLL_INTERVAL = 0.2
_OWN_PROCESSES = (
    *("unshare", "--user", "--map-root-user"),
    *("--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
)
_ENGINE = "VLLM::EngineCore"
_POD_IP = "127.0.0.1"
_REFERENCE = re.compile(r"\$\$\(|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class VllmServer:
    """One start of a container; its output is in `log_file`."""

    def __init__(self, container: Mapping[str, Any], interpreter: Path, folder: Path) -> None:
        self.log_file = folder / "vllm.log"
        self._lease = PortLease(["http"])
        self._process = spawn_bound(
            [*_OWN_PROCESSES, *self._command(container, interpreter)],
            self.log_file,
            _environment(container, interpreter, folder / "cache"),
        )

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._lease.ports['http']}"

    @property
    def log(self) -> str:
        """All that it has printed."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def _command(self, container: Mapping[str, Any], interpreter: Path) -> list[str]:
        program, *rest = container.get("command", _ENTRYPOINT)
        arguments = _expand(container["args"], _variables(container))
        listening = (f"--port={self._lease.ports['http']}", "--host=127.0.0.1")
        script = interpreter.parent / program
        return [str(interpreter), str(script), *rest, *arguments, *listening]

    def wait_healthy(self, timeout: float) -> set[int | None]:
        """Wait for 200 on /health; return what was answered until then, None for no connection."""
        answers: set[int | None] = set()
        deadline = time.monotonic() + timeout
        while (status := self.ask_health()) != 200:
            answers.add(status)
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise HarnessError(f"vLLM is not healthy; see {self.log_file}:\n{self.log[-2000:]}")
            time.sleep(_POLL_INTERVAL)
        return answers

    def ask_health(self) -> int | None:
        """The status of /health, None where nothing listens."""
        try:
            return self.get("/health")[0]
        except ConnectionRefusedError:
            return None

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        connection = http.client.HTTPConnection(self.address, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()

    def stream(self, body: Mapping[str, Any]) -> http.client.HTTPResponse:
        """Begin a completion; the answer's head has been read, its events have not."""
        connection = http.client.HTTPConnection(self.address, timeout=120)
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps({**body, "stream": True}),
            {"Content-Type": "application/json"},
        )
        return connection.getresponse()

    def terminate(self) -> None:
        """Send SIGTERM as a kubelet does: to the container's first process."""
        (first,) = _children(self._process.pid)
        first.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the container, as a node that is lost does; no process of it is left then."""
        first = _children(self._process.pid) if self._process.poll() is None else []
        for process in first:  # with the first process of a namespace end all others
            process.send(signal.SIGKILL)
        if not first:
            self._process.kill()
        self._process.wait()

    def kill_engine(self) -> None:
        """Kill the engine as the kernel does when memory is short."""
        (first,) = _children(self._process.pid)
        (engine,) = (child for child in _children(first.pid) if _ENGINE in _title(child))
        engine.send(signal.SIGKILL)

    def wait_ended(self, timeout: float) -> int:
        """Wait for the end of the container and return its exit code."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise HarnessError(
                f"vLLM still runs after {timeout:.0f} s; see {self.log_file}:\n{self.log[-2000:]}"
            ) from None

    def __enter__(self) -> VllmServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._lease.release()


def _environment(container: Mapping[str, Any], interpreter: Path, cache: Path) -> dict[str, str]:
    """The rendered variables, with the folder that stands for the volume of caches."""
    cache.mkdir()
    given = _variables(container)
    volume = re.compile(rf"^{_CACHE_VOLUME}(?=/|$)")
    return {
        "PATH": f"{interpreter.parent}:{os.environ['PATH']}",
        **{name: volume.sub(str(cache), value) for name, value in given.items()},
    }


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    """The container's variables. Of the fields of a pod, only its address is rendered."""
    return {
        variable["name"]: _POD_IP if "valueFrom" in variable else str(variable["value"])
        for variable in container["env"]
    }


def _expand(arguments: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The arguments as a kubelet passes them: $(NAME) is the value of a variable, $$ a dollar."""

    def value(match: re.Match[str]) -> str:
        return "$(" if match[0] == "$$(" else variables.get(match[1], match[0])

    return [_REFERENCE.sub(value, argument) for argument in arguments]


def _children(pid: int) -> Sequence[ProcessId]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    processes = (ProcessId.of(int(child)) for child in listed)
    return [child for child in processes if child is not None]


def _title(process: ProcessId) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8", errors="replace")
