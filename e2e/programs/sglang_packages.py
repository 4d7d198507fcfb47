"""The packages of SGLang whose Python has its arguments, its memory and its metrics.

They are kept in a folder of the cache, 0.2 GB, and run on the Python and the torch of
`vllm_environment.SERVER`. Packages of GPU kernels are left out: tests/support/sglang_memory has
stubs for them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from e2e.harness.binaries import cache_folder, locked
from e2e.programs.vllm_environment import REQUIREMENTS, SERVER, install_locked, interpreter

_LOCK_FILE: Final = "sglang.lock"
_STAMP: Final = "whole"


def sglang_python() -> tuple[Path, Path]:
    """A Python with torch, and the folder to put on its path; what is not there yet, or not whole,
    is installed first.

    Raises HarnessError when pip cannot install a lock file.
    """
    python = interpreter(SERVER)
    lock = (REQUIREMENTS / _LOCK_FILE).read_bytes()
    digest = hashlib.sha256(lock + sys.version.encode()).hexdigest()[:12]
    folder = cache_folder(os.environ) / "sglang" / digest
    with locked(folder.parent / ".lock", lambda _: None):
        if not (folder / _STAMP).exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an install that was interrupted
            install_locked(python, _LOCK_FILE, "--target", str(folder))
            (folder / _STAMP).touch()
    return python, folder
