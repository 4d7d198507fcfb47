"""`kubectl tonnage`, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.harness.operator_process import ROOT


class Plugin:
    """kubectl with the installed command on PATH, where it finds its plugins."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self._kubectl = kubectl
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(ROOT / "operator"),
            "COLUMNS": "200",
        }

    def run(self, *arguments: str, text: str = "", exit_code: int = 0) -> str:
        """What it prints; anything but this exit code is an error."""
        result = subprocess.run(
            [str(self._kubectl), "tonnage", *arguments],
            input=text,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == exit_code, result.stderr
        assert "Traceback" not in result.stderr
        return result.stdout
