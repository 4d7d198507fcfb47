"""Run the shipped Lua in the real Argo CD: `argocd admin settings resource-overrides`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from e2e.harness.binaries import program_path
from e2e.programs.argo_cd_settings import SETTINGS

# Argo CD shows a change with a diff program; this one prints the changed object instead.
_WHOLE_OBJECT = "sh -c 'cat \"$1\"'"
_CHANGED = "Following fields have been changed:\n\n"


def overrides(
    command: str, path: Path, *arguments: str, zone: str = "UTC"
) -> subprocess.CompletedProcess[str]:
    """Run health, list-actions or run-action on the object in a file, with the shipped settings."""
    program = [str(program_path("argocd")), "admin", "settings", "resource-overrides", command]
    return subprocess.run(
        [*program, str(path), *arguments, f"--argocd-cm-path={SETTINGS}"],
        env={**os.environ, "KUBECTL_EXTERNAL_DIFF": _WHOLE_OBJECT, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def changed_by(action: str, path: Path) -> str:
    """The object in a file as YAML after one of the shipped actions."""
    result = overrides("run-action", path, action)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(_CHANGED)
    return result.stdout.removeprefix(_CHANGED)
