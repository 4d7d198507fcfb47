"""Cache the tensors of a commit on disk, so that a restart does not read hundreds of headers again.

Entries are in huggingface_hub's assets cache, which its tools list and delete. A commit never
changes, so an entry is never stale. A lost or read-only cache costs only requests.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from huggingface_hub import cached_assets_path

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.safetensors.headers import parse_table
from tonnage.checkpoint.tensor_table import TensorTable, dump_table

_FILE: Final = "tensors.json"
_MAX_ENTRY_BYTES: Final = 4 * 1024**2


def load_tensors(cache_dir: Path | None, repo: str, commit: str) -> TensorTable | None:
    """Return the stored tensors of a commit, None without a valid entry.

    `cache_dir` None means HF_ASSETS_CACHE, or `assets` under HF_HOME.
    """
    try:
        with _entry_path(cache_dir, repo, commit).open("rb") as file:
            return parse_table(file.read(_MAX_ENTRY_BYTES))
    except (OSError, CheckpointError):
        return None


def store_tensors(cache_dir: Path | None, repo: str, commit: str, tensors: TensorTable) -> None:
    """Store the tensors of a commit; ignore a cache that cannot be written."""
    try:
        path = _entry_path(cache_dir, repo, commit)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(dump_table(tensors))
        Path(temporary).replace(path)  # atomic: a reader sees the complete entry or none
    except OSError:
        return


def _entry_path(cache_dir: Path | None, repo: str, commit: str) -> Path:
    try:
        folder = cached_assets_path(
            "tonnage", namespace=repo, subfolder=commit, assets_dir=cache_dir
        )
    except ValueError as error:  # a file is in the place of a folder
        raise OSError(str(error)) from error
    return folder / _FILE
