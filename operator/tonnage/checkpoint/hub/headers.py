"""Read the tensors of a repository from the headers of its weight files, within limits of memory.

Repositories are untrusted: any user who may create an InferenceDeployment may name one. A parsed
header takes thirty times its size in memory; one of the format's largest size takes more than the
operator has. So this module limits each header and the sum of all headers, and parses one at a
time, which costs nothing: Python parses JSON in one thread at a time.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tonnage.checkpoint.hub.files import RepositoryFiles
from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.safetensors.headers import LENGTH_BYTES, parse_header, parse_header_length
from tonnage.checkpoint.tensor_table import TensorTable, join_tables

FIRST_READ_BYTES: Final = 100_000
"""Bytes of the first read of a weight file; 97 % of headers fit (huggingface_hub, hf_api.py)."""

PARALLEL_READS: Final = 8

MAX_HEADER_BYTES: Final = 4 * 1024**2
"""Largest header of one file; parsed, it takes 130 MB at worst. 4 MiB describe 27,000 tensors."""

MAX_HEADERS_BYTES: Final = 32 * 1024**2
"""Largest sum over the files of a repository; the headers of 140,000 tensors have 21 MB."""

MAX_TABLE_ROWS: Final = 100_000
"""Most rows over all files; a published repository has some hundred for each file."""

_parse_lock: Final = threading.Lock()
"""Shared by all lookups: parsing takes most of the memory."""


def read_headers(files: RepositoryFiles, names: Sequence[str]) -> TensorTable:
    """Return the tensors of these files.

    Raises CheckpointError for malformed and oversized headers, and what
    `RepositoryFiles.read_start` raises.
    """
    budget = _HeaderBudget()
    with ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="tonnage-header") as readers:
        return join_tables(readers.map(lambda name: _read_header(files, name, budget), names))


class _HeaderBudget:
    """The limits for all headers of one repository; `_parse_lock` guards it."""

    def __init__(self) -> None:
        self._bytes = MAX_HEADERS_BYTES
        self._rows = MAX_TABLE_ROWS

    def parse(self, start: bytes, length: int) -> TensorTable:
        """Return the tensors of the header in `start`. Raises CheckpointError."""
        self._bytes -= length
        if self._bytes < 0:
            raise CheckpointError(
                f"with its header, the repository's headers exceed {MAX_HEADERS_BYTES} bytes"
            )
        tensors = parse_header(start)
        self._rows -= len(tensors.rows)
        if self._rows < 0:
            raise CheckpointError(
                f"with its tensors, the repository has more than {MAX_TABLE_ROWS} that differ in "
                "more than a number"
            )
        return tensors


def _read_header(files: RepositoryFiles, name: str, budget: _HeaderBudget) -> TensorTable:
    try:
        start = files.read_start(name, FIRST_READ_BYTES)
        length = LENGTH_BYTES + parse_header_length(start)
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"its header has {length} bytes, at most {MAX_HEADER_BYTES} are read here"
            )
        if length > len(start):
            start = files.read_start(name, length)
        with _parse_lock:
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
