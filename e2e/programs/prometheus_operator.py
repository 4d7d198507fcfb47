"""The real Prometheus Operator: it makes a Prometheus' configuration of PodMonitors and rules.

It runs as a process outside the cluster. The Prometheus that it would run in a pod is started by
the tests, with the very configuration that it wrote.
"""

from __future__ import annotations

import base64
import gzip
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e.harness.admin import Admin
from e2e.harness.binaries import program_path
from e2e.harness.go_modules import module_folder
from e2e.harness.ports import PortLease
from e2e.harness.processes import end, spawn_bound
from e2e.harness.rest import Json
from e2e.harness.tools import PROGRAMS

_NAME = "prometheus-operator"
_GROUP = "monitoring.coreos.com"
_KINDS = ("podmonitors", "probes", "prometheuses", "prometheusrules", "servicemonitors")
_PROMETHEUS = "tests"
_STOP_TIMEOUT = 20.0
_TIMEOUT = 240.0
_SHOWN_BYTES = 4_000
# What the reloader next to Prometheus, and the StatefulSet, put in a pod's place.
_VARIABLES = {"$(POD_NAME)": "prometheus-tests-0", "$(SHARD)": "0"}


@contextmanager
def crds(admin: Admin) -> Iterator[None]:
    """Its kinds that are needed here, of its own release, while the block runs. They are gone after
    it: the next block would get kinds that are about to go."""
    folder = module_folder(_NAME, PROGRAMS[_NAME].module) / "example" / "prometheus-operator-crd"
    try:
        for plural in _KINDS:
            admin.apply(folder / f"{_GROUP}_{plural}.yaml")
        yield
    finally:
        for plural in _KINDS:
            admin.delete("crd", f"{plural}.{_GROUP}", timeout=None)
        for plural in _KINDS:
            admin.wait_gone("crd", f"{plural}.{_GROUP}", timeout=_TIMEOUT)


class PrometheusOperator:
    """The operator with one Prometheus object in a namespace, which selects all that there is."""

    def __init__(self, admin: Admin, namespace: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._admin = admin
        self._namespace = namespace
        self._log = folder / f"{_NAME}.log"
        self._lease = PortLease([_NAME])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and ask it for a Prometheus that scrapes and evaluates each second."""
        everything: Json = {
            f"{what}{which}": {}
            for what in ("podMonitor", "rule")
            for which in ("Selector", "NamespaceSelector")
        }
        self._admin.apply(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "Prometheus",
                "metadata": {"name": _PROMETHEUS, "namespace": self._namespace},
                "spec": {
                    **everything,
                    "replicas": 0,
                    "version": PROGRAMS["prometheus"].release,
                    "scrapeInterval": "1s",
                    "evaluationInterval": "1s",
                },
            }
        )
        address = f"127.0.0.1:{self._lease.ports[_NAME]}"
        self._process = spawn_bound(
            [str(program_path(_NAME)), f"-web.listen-address={address}"],
            self._log,
            {**os.environ, "KUBECONFIG": str(self._admin.kubeconfig)},
        )

    def configuration(self, *, jobs: int) -> Json:
        """What it made of the PodMonitors: so many jobs, with a pod's variables filled in."""
        return self._admin.until(
            f"the Prometheus Operator to write a configuration with {jobs} jobs",
            lambda: self._written(jobs),
            timeout=_TIMEOUT,
            describe=self._last_words,
        )

    def _written(self, jobs: int) -> Json | None:
        secret = self._admin.get("secrets", f"prometheus-{_PROMETHEUS}", self._namespace)
        data = (secret or {}).get("data") or {}
        if "prometheus.yaml.gz" not in data:
            return None
        text = gzip.decompress(base64.b64decode(data["prometheus.yaml.gz"])).decode()
        for variable, value in _VARIABLES.items():
            text = text.replace(variable, value)
        config: Json = yaml.safe_load(text)
        return config if len(config.get("scrape_configs") or ()) == jobs else None

    def rules(self) -> Json:
        """The file that it made of the PrometheusRule, all groups in it."""
        name = f"prometheus-{_PROMETHEUS}-rulefiles-0"

        def written() -> Json | None:
            stored = self._admin.get("configmaps", name, self._namespace) or {}
            files = stored.get("data") or {}
            groups = [group for text in files.values() for group in yaml.safe_load(text)["groups"]]
            return {"groups": groups} if groups else None

        return self._admin.until(
            "the Prometheus Operator to accept the rules",
            written,
            timeout=_TIMEOUT,
            describe=self._last_words,
        )

    def _last_words(self) -> str:
        return self._log.read_text("utf-8", errors="replace")[-_SHOWN_BYTES:]

    def close(self) -> None:
        """End it and give its port back."""
        if self._process is not None:
            end(self._process, _STOP_TIMEOUT)
        self._lease.release()
