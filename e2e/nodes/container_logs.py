"""The log half of a kubelet, for all nodes of a stack.

KWOK can serve one file for all pods, or one for a pod that is known by name beforehand; neither
tells a failing pod of a Deployment from a healthy one. So the nodes' kubelet port leads here, and
each request looks at the pod itself: which behaviour it has, and what its container does now. The
refusals are a kubelet's, in its words.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from e2e.harness.failure import HarnessError
from e2e.harness.loopback_server import Certificate, LoopbackServer
from e2e.harness.rest import ApiError, Json, Rest
from e2e.nodes.behaviours import grows, log_name

_READY_MARK = "Application startup complete."
_EARLY_SHARE = 0.4  # how much of its log a container has written before it is ready or fails


class RefusedError(Exception):
    """A kubelet's refusal: it reaches the caller of the logs API as 400 Bad Request."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a container's log."""

    at: datetime
    text: str


def container_log(pod: Json, container: str, logs: Path, *, previous: bool = False) -> list[Line]:
    """Return the lines that a container of `pod` has written, as its status has it now."""
    instance = _instance(pod, container, previous=previous)
    if container != pod["spec"]["containers"][0]["name"]:
        return []  # only the first container speaks, and fails
    metadata = pod["metadata"]
    name = log_name(pod)
    path = logs / f"{name}.log"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in logs.glob("*.log")))
        raise RefusedError(f'pod "{metadata["name"]}" wants log {name!r}; known logs: {known}')
    lines = [line.split(" ", 3) for line in path.read_text(encoding="utf-8").splitlines()]
    if grows(pod):
        return _recorded(lines, instance)
    shown = lines[: _written(instance, [line[3] for line in lines])]
    start, end = instance.started, instance.finished or datetime.now(UTC)
    step = (end - start) / max(1, len(lines))
    return [Line(start + step * number, line[3]) for number, line in enumerate(shown)]


@dataclass(frozen=True, slots=True)
class _Instance:
    """One run of a container: a restarted one has had several."""

    started: datetime
    finished: datetime | None
    ready: bool


def _instance(pod: Json, container: str, *, previous: bool) -> _Instance:
    """Choose the run whose log is asked for, or refuse as a kubelet does."""
    name, statuses = pod["metadata"]["name"], pod["status"].get("containerStatuses") or []
    status = next((item for item in statuses if item["name"] == container), None)
    if status is None:
        raise RefusedError(f'container "{container}" in pod "{name}" is not available')
    state, last = status["state"], (status.get("lastState") or {}).get("terminated")
    if previous:
        if last is None:
            raise RefusedError(
                f'previous terminated container "{container}" in pod "{name}" not found'
            )
        return _ended(last)
    if "running" in state:
        return _Instance(_time(state["running"]["startedAt"]), None, bool(status["ready"]))
    if "terminated" in state:
        return _ended(state["terminated"])
    if last is not None:
        return _ended(last)
    reason = (state.get("waiting") or {}).get("reason", "")
    words = {
        "ErrImagePull": "image can't be pulled",
        "ImagePullBackOff": "trying and failing to pull image",
    }
    waits = words.get(reason, reason)
    raise RefusedError(f'container "{container}" in pod "{name}" is waiting to start: {waits}')


def _recorded(lines: list[list[str]], instance: _Instance) -> list[Line]:
    """Return the lines that are out by now, each as long after the start as it was recorded."""
    shift = instance.started - _time(lines[0][0])
    written = [Line(_time(line[0]) + shift, line[3]) for line in lines]
    end = instance.finished or datetime.now(UTC)
    return [line for line in written if line.at <= end]


def _ended(terminated: Json) -> _Instance:
    return _Instance(_time(terminated["startedAt"]), _time(terminated["finishedAt"]), ready=False)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _written(instance: _Instance, texts: list[str]) -> int:
    """Return how many lines are out: all of them only after the end of a run."""
    if instance.finished is not None:
        return len(texts)
    if not instance.ready:
        return int(len(texts) * _EARLY_SHARE)
    marks = [number for number, text in enumerate(texts, 1) if _READY_MARK in text]
    return marks[-1] if marks else len(texts)


def select(lines: list[Line], options: dict[str, str]) -> bytes:
    """Apply the options of the logs API in a kubelet's order: since, tail, then the byte limit."""
    if "sinceSeconds" in options:
        since = datetime.now(UTC) - timedelta(seconds=int(options["sinceSeconds"]))
        lines = [line for line in lines if line.at >= since]
    if "sinceTime" in options:
        lines = [line for line in lines if line.at >= _time(options["sinceTime"])]
    if "tailLines" in options:
        count = int(options["tailLines"])
        lines = lines[-count:] if count > 0 else []
    stamped = options.get("timestamps") == "true"
    texts = (
        f"{line.at:%Y-%m-%dT%H:%M:%S.%f}000Z {line.text}" if stamped else line.text
        for line in lines
    )
    data = "".join(f"{text}\n" for text in texts).encode()
    return data[: int(options["limitBytes"])] if "limitBytes" in options else data


class LogEndpoint:
    """Serve the logs of all pods on loopback, as the kubelets of all nodes."""

    def __init__(self, rest: Rest, logs: Path, pki: Path) -> None:
        self._rest, self._logs, self._pki = rest, logs, pki

    def start(self, port: int) -> None:
        """Listen in the background until the process ends."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                code, body = endpoint.answer(self.path)
                self.send_response(code)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - inherited name
                """Stay silent: the audit log has every request already."""

        certificate = Certificate(self._pki / "apiserver.crt", self._pki / "apiserver.key")
        LoopbackServer(Handler, port=port, certificate=certificate).start()

    def answer(self, target: str) -> tuple[int, bytes]:
        """Answer `/containerLogs/<namespace>/<pod>/<container>?...` and no other kubelet path."""
        address = urlsplit(target)
        parts = address.path.strip("/").split("/")
        if len(parts) != 4 or parts[0] != "containerLogs":
            return 501, f"{address.path} is not played by this harness".encode()
        _, namespace, name, container = parts
        options = {key: values[-1] for key, values in parse_qs(address.query).items()}
        try:
            pod = self._rest.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
            previous = options.get("previous") == "true"
            lines = container_log(pod, container, self._logs, previous=previous)
            return 200, select(lines, options)
        except ApiError as error:
            return error.code, str(error).encode()
        except RefusedError as refusal:
            return 400, str(refusal).encode()
        except (HarnessError, ValueError) as error:
            return 500, str(error).encode()
