"""A real Prometheus on a loopback port, and queries to it."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from e2e.harness.binaries import program_path
from e2e.harness.failure import HarnessError
from e2e.harness.ports import PortLease
from e2e.harness.processes import end, spawn_bound
from e2e.harness.rest import Json

_START_TIMEOUT = 180.0
_ANSWER_TIMEOUT = 60.0
_STOP_TIMEOUT = 20.0
_POLL_INTERVAL = 0.05
_RETENTION = "2h"
_SHOWN_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Guard:
    """TLS with this certificate, and answers for one user only."""

    certificate: Path
    key: Path
    user: str = "robot"
    password: str = "a-guard-of-tests"  # noqa: S105 - of a server on loopback, for one test
    bcrypt: str = "$2b$04$abcdefghijklmnopqrstuur0qcOgHcXYwPtnAferM/SSTQqsRNLgq"

    @property
    def web_config(self) -> Json:
        """As Prometheus reads it with --web.config.file."""
        certificate, key = str(self.certificate), str(self.key)
        return {
            "tls_server_config": {"cert_file": certificate, "key_file": key},
            "basic_auth_users": {self.user: self.bcrypt},
        }


class Prometheus:
    """One server with a folder of its own; started and ended by its own process id.

    Its address is known before it runs, since what it scrapes may want to ask it in turn.
    """

    def __init__(self, folder: Path, guard: Guard | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._guard = guard
        self._lease = PortLease(["prometheus"])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._lease.ports['prometheus']}"

    @property
    def url(self) -> str:
        """Where its API begins."""
        return f"{'https' if self._guard else 'http'}://{self.address}"

    def start(self, config: Json, rules: Mapping[str, Json]) -> None:
        """Start it with a configuration and rule files by name; return when it answers."""
        for name, content in rules.items():
            _write(self._folder / name, content)
        path = self._folder / "prometheus.yaml"
        _write(path, {**config, "rule_files": [str(self._folder / name) for name in rules]})
        command = [str(program_path("prometheus")), f"--config.file={path}"]
        command += [f"--storage.tsdb.path={self._folder / 'data'}", "--log.level=warn"]
        command += [f"--storage.tsdb.retention.time={_RETENTION}"]
        command += [f"--web.listen-address={self.address}"]
        if self._guard is not None:
            _write(self._folder / "web.yaml", self._guard.web_config)
            command += [f"--web.config.file={self._folder / 'web.yaml'}"]
        self._process = spawn_bound(command, self._folder / "prometheus.log")
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise HarnessError(f"Prometheus did not start: {self._last_words()}")
            time.sleep(_POLL_INTERVAL)

    def stop(self) -> None:
        """End it; its address stays reserved, and no process answers there."""
        if self._process is not None:
            end(self._process, _STOP_TIMEOUT)

    def close(self) -> None:
        """End it and give its port back."""
        self.stop()
        self._lease.release()

    def query(self, expression: str) -> list[Json]:
        """The vector of an instant query. Raises HarnessError for one that it refuses."""
        data = self._get("query", query=expression)
        result: list[Json] = data["result"]
        return result

    def values_of(self, label: str, selector: str) -> list[str]:
        """The values of a label among the series of a selector, as a dashboard's variable asks."""
        values: list[str] = self._get(f"label/{label}/values", **{"match[]": selector})
        return values

    def targets(self) -> list[Json]:
        """What it scrapes, with labels and health."""
        targets: list[Json] = self._get("targets", state="active")["activeTargets"]
        return targets

    def alerts(self) -> list[Json]:
        """Pending and firing alerts."""
        alerts: list[Json] = self._get("alerts")["alerts"]
        return alerts

    def rules(self) -> list[Json]:
        """All rules, with the health of their last evaluation."""
        groups: list[Json] = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{path}"
        answer = self._client().get(url, params=parameters, timeout=_ANSWER_TIMEOUT)
        if answer.is_error:
            raise HarnessError(f"{path} {parameters}: {answer.text}")
        return answer.json()["data"]

    def _answers(self) -> bool:
        try:
            return self._client().get(f"{self.url}/-/ready", timeout=10).is_success
        except httpx.TransportError:
            return False

    def _client(self) -> httpx.Client:
        guard = self._guard
        if guard is None:
            return httpx.Client()
        trusted = ssl.create_default_context(cafile=guard.certificate)
        return httpx.Client(verify=trusted, auth=(guard.user, guard.password))

    def _last_words(self) -> str:
        log = self._folder / "prometheus.log"
        return f"log {log} ends\n{log.read_text('utf-8', errors='replace')[-_SHOWN_BYTES:]}"


def _write(path: Path, content: Json) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
