"""A log that another process writes is read by complete lines."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.audit_log import AuditLog

WHOLE = b'{"verb": "create"}\n'


@pytest.mark.parametrize("begun", [b"", b'{"at": "2026-', b'{"at": "' + b"x" * 200_000])
def test_an_incomplete_line_is_read_once_it_is_complete(tmp_path: Path, begun: bytes) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.path.write_bytes(WHOLE + begun)
    mark = log.mark()
    assert log.events() == [{"verb": "create"}]
    assert log.events(mark) == []
    log.path.write_bytes(WHOLE + (begun or b'{"at": "') + b'11-22"}\n')
    assert [list(event) for event in log.events(mark)] == [["at"]]


class Growing(io.RawIOBase):
    """A file that another process goes on to write after its end was read."""

    def __init__(self, *written: bytes) -> None:
        self._reads = [part for each in written for part in (each, b"")]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return offset

    def readinto(self, buffer: Any, /) -> int:
        part = self._reads.pop(0) if self._reads else b""
        buffer[: len(part)] = part
        return len(part)


def test_a_line_that_is_completed_while_it_is_read_is_left_to_the_next_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    growing = io.BufferedReader(Growing(WHOLE + b'{"verb": ', b'"patch"}\n'))
    monkeypatch.setattr(Path, "open", lambda _, __: growing)
    assert AuditLog(Path("audit.log")).events() == [{"verb": "create"}]


def test_a_log_without_a_complete_line_is_read_from_its_start(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.path.write_bytes(WHOLE[:9])
    assert log.mark() == 0
    assert log.events(log.mark()) == []
