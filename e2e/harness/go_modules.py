"""Files that tests read from Go modules, as other projects' CustomResourceDefinitions.

Pinned in `go/NAME/go.mod` with their hash in go.sum, downloaded once into Go's module cache;
nothing is built.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from e2e.harness.binaries import go_env
from e2e.harness.failure import HarnessError

_GO = Path(__file__).parents[1] / "go"


def module_folder(name: str, module: str) -> Path:
    """Return the folder with the source of `module` in the version that `go/NAME/go.mod` pins.

    Raises HarnessError when it is neither in the module cache nor to be had.
    """
    folder = _GO / name
    try:
        result = subprocess.run(
            ["go", "mod", "download", "-json", module],
            cwd=folder,
            env=go_env(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise HarnessError(f"no `go` on PATH, which downloads {module} for {folder}") from None
    described = json.loads(result.stdout) if result.stdout else {}
    if "Dir" not in described:
        reason = described.get("Error") or result.stderr.strip()
        raise HarnessError(f"go mod download of {module} in {folder}: {reason}")
    return Path(described["Dir"])
