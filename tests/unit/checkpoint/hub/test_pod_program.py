"""How much of a download is on a disk."""

import os
from pathlib import Path

from tonnage.checkpoint.hub.pod_program import count_bytes


def test_what_is_only_reserved_in_a_file_is_not_counted(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(2**30)
    assert 4096 <= count_bytes(tmp_path) < 2**20
    assert count_bytes(tmp_path / "missing") == 0


def test_files_of_all_folders_count_and_links_do_not(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 5000)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b" / "file")
    os.mkfifo(tmp_path / "pipe")
    assert count_bytes(tmp_path) == 5000
