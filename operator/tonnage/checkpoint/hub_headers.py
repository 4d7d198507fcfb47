"""The tensors of a repository from the headers of its weight files, within bounds of memory.

Anybody may publish a repository, and whoever may create an InferenceDeployment may name it. A
header of the format's largest size takes thirty times as much memory once it is parsed, more than
the operator has. So a header is read to a smaller bound, all of them together to another, and they
are parsed one after the other, which costs nothing: Python parses JSON in one thread at a time.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tonnage.checkpoint.hub_files import RepositoryFiles
from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.safetensors import LENGTH_BYTES, parse_header, parse_header_length
from tonnage.checkpoint.stored_tensors import TensorTable, join_tables

FIRST_READ_BYTES: Final = 100_000
"""Read of a weight file at once: holds 97 % of all headers (huggingface_hub, hf_api.py)."""

PARALLEL_READS: Final = 8

MAX_HEADER_BYTES: Final = 4 * 1024**2
"""Largest header of one file; it is parsed into 130 MB at worst. 4 MiB describe 27,000 tensors."""

MAX_HEADERS_BYTES: Final = 32 * 1024**2
"""Largest sum over the files of a repository; the headers of 140,000 tensors have 21 MB."""

MAX_TABLE_ROWS: Final = 100_000
"""Most rows over the files; a published repository has some hundred for each of its files."""

_parsing: Final = threading.Lock()
"""Of all lookups together: what is being parsed takes most of the memory."""


def read_headers(files: RepositoryFiles, names: Sequence[str]) -> TensorTable:
    """Return the tensors of these files.

    Raises CheckpointError when a header is malformed or beyond the bounds, and what
    `RepositoryFiles.read_start` raises.
    """
    budget = _Budget()
    with ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="tonnage-header") as readers:
        return join_tables(readers.map(lambda name: _read_header(files, name, budget), names))


class _Budget:
    """What the headers of one repository may take together; used while `_parsing` is held."""

    def __init__(self) -> None:
        self._bytes = MAX_HEADERS_BYTES
        self._rows = MAX_TABLE_ROWS

    def parse(self, start: bytes, length: int) -> TensorTable:
        """The tensors of the header in `start`. Raises CheckpointError."""
        self._bytes -= length
        if self._bytes < 0:
            raise CheckpointError(
                f"with its header those of the repository have more than {MAX_HEADERS_BYTES} bytes"
            )
        tensors = parse_header(start)
        self._rows -= len(tensors.rows)
        if self._rows < 0:
            raise CheckpointError(
                f"with its tensors the repository has more than {MAX_TABLE_ROWS} that differ in "
                "more than a number"
            )
        return tensors


def _read_header(files: RepositoryFiles, name: str, budget: _Budget) -> TensorTable:
    try:
        start = files.read_start(name, FIRST_READ_BYTES)
        length = LENGTH_BYTES + parse_header_length(start)
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"its header has {length} bytes, at most {MAX_HEADER_BYTES} are read here"
            )
        if length > len(start):
            start = files.read_start(name, length)
        with _parsing:
            tensors = budget.parse(start, length)
        size = files.sizes.get(name)
        if size is not None and size != length + tensors.total_bytes:
            raise CheckpointError(
                f"the file has {size} bytes, but header and tensors take "
                f"{length + tensors.total_bytes}: it is cut off or damaged"
            )
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error
    return tensors
