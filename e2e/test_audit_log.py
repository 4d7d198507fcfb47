"""A log that another process writes is read by complete lines."""

from __future__ import annotations

from pathlib import Path

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


def test_a_log_without_a_complete_line_is_read_from_its_start(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.path.write_bytes(WHOLE[:9])
    assert log.mark() == 0
    assert log.events(log.mark()) == []
