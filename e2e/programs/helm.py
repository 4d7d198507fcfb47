"""The real helm, with folders of its own and, where a cluster is meant, one kubeconfig."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from e2e.harness.binaries import program_path
from e2e.harness.failure import HarnessError
from e2e.harness.rest import Json

CHARTS = Path(__file__).parents[2] / "charts"
OPERATOR_CHART = CHARTS / "tonnage"
CRD_CHART = CHARTS / "tonnage-crds"

_TIMEOUT = 600.0  # above what a call may give helm itself to wait


class Helm:
    """Runs helm; nothing of the user's own settings, repositories or plugins reaches it."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._program = program_path("helm")
        self._environment = {name: os.environ[name] for name in ("PATH", "HOME")}
        for kind in ("CACHE", "CONFIG", "DATA"):
            self._environment[f"HELM_{kind}_HOME"] = str(folder / kind.lower())
        # Without a cluster none must be found by chance.
        self._environment["KUBECONFIG"] = str(kubeconfig or folder / "no-kubeconfig")

    def run(self, *arguments: str | Path) -> str:
        """Return what helm prints. Raises HarnessError with helm's own words."""
        result = subprocess.run(
            [str(self._program), *map(str, arguments)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if result.returncode != 0:
            said = (result.stderr.strip() + "\n" + result.stdout.strip()).strip()
            raise HarnessError(f"helm {' '.join(map(str, arguments))}: {said}")
        return result.stdout

    def render(self, chart: Path, *arguments: str | Path, namespace: str) -> list[Json]:
        """Return the objects of a chart, as a release of the chart's own name would have them."""
        text = self.run("template", chart.name, chart, f"--namespace={namespace}", *arguments)
        return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]

    def history(self, release: str, namespace: str) -> list[dict[str, Any]]:
        """Return the revisions of a release, oldest first."""
        text = self.run("history", release, f"--namespace={namespace}", "--output=json")
        revisions: list[dict[str, Any]] = json.loads(text)
        return revisions
