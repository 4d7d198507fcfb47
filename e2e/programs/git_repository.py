"""A Git repository on disk, as Argo CD reads it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from e2e.harness.failure import HarnessError
from e2e.harness.rest import Json

_BRANCH = "main"
# No user's own settings, hooks or signatures may change what a test commits.
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "platform",
    "GIT_AUTHOR_EMAIL": "platform@example.com",
    "GIT_COMMITTER_NAME": "platform",
    "GIT_COMMITTER_EMAIL": "platform@example.com",
}


class GitRepository:
    """One branch, `main`, with YAML files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._git("init", "--quiet", f"--initial-branch={_BRANCH}")

    @property
    def url(self) -> str:
        """Where a repo server on this machine reads it."""
        return self.folder.absolute().as_uri()

    def commit(self, files: Mapping[str, Json | None]) -> str:
        """Write files, or remove those that are None, and return the commit."""
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", f"--message=Change {', '.join(files)}")
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        result = subprocess.run(
            ["git", "-C", str(self.folder), *arguments],
            env={**os.environ, **_ENVIRONMENT},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise HarnessError(f"git {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout
