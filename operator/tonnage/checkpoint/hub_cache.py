"""The tensors of a commit on disk, so that a restart need not read hundreds of headers again.

It lies in huggingface_hub's assets cache, which its tools list and delete. A commit never changes,
so an entry is never stale. Losing the cache, or not being able to write it, costs requests only.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from huggingface_hub import cached_assets_path

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.safetensors import parse_table
from tonnage.checkpoint.stored_tensors import TensorTable, dump_table

_FILE: Final = "tensors.json"
_MAX_ENTRY_BYTES: Final = 4 * 1024**2


def load_tensors(cache_dir: Path | None, repo: str, commit: str) -> TensorTable | None:
    """Return what was stored for a commit, None when there is nothing usable.

    `cache_dir` None means HF_ASSETS_CACHE, or `assets` under HF_HOME.
    """
    try:
        with _path(cache_dir, repo, commit).open("rb") as file:
            return parse_table(file.read(_MAX_ENTRY_BYTES))
    except (OSError, CheckpointError):
        return None


def store_tensors(cache_dir: Path | None, repo: str, commit: str, tensors: TensorTable) -> None:
    """Store the tensors of a commit; a cache that cannot be written is no error."""
    try:
        path = _path(cache_dir, repo, commit)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(dump_table(tensors))
        Path(temporary).replace(path)  # atomic: a reader sees all of it or nothing
    except OSError:
        return


def _path(cache_dir: Path | None, repo: str, commit: str) -> Path:
    try:
        folder = cached_assets_path(
            "tonnage", namespace=repo, subfolder=commit, assets_dir=cache_dir
        )
    except ValueError as error:  # a file lies where a folder should be
        raise OSError(str(error)) from error
    return folder / _FILE
