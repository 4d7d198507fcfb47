"""How much a Job has downloaded, from its log."""

from datetime import timedelta

import pytest

from tonnage.telemetry.download_progress import DownloadProgress, read_download

HALF = "progress: 512 of 1024 bytes, 256 of them in 60 s"


def test_the_last_line_counts() -> None:
    log = (
        f"Fetching 30 files\nprogress: 1 of 1024 bytes, 1 of them in 10 s\n{HALF}\nwarning: slow\n"
    )
    progress = read_download(log)
    assert progress == DownloadProgress(512, 1024, 256, timedelta(seconds=60))
    assert progress.percent == 50
    assert progress.remaining == timedelta(seconds=120)


def test_nothing_is_promised_before_there_is_a_rate() -> None:
    progress = read_download("progress: 512 of 1024 bytes, 0 of them in 60 s")
    assert progress is not None
    assert (progress.percent, progress.remaining) == (50, None)


@pytest.mark.parametrize(
    "line",
    [
        "progress: 2048 of 1024 bytes, 0 of them in 60 s",
        "progress: 0 of 0 bytes, 0 of them in 60 s",
        "progress: 512 of 1024 bytes, 600 of them in 60 s",
        "progress: -1 of 1024 bytes, 0 of them in 60 s",
        f"progress: {'9' * 40} of {'9' * 40} bytes, 0 of them in 60 s",
        f"{HALF} {'x' * 300}",
        "progress: ५१२ of 1024 bytes, 0 of them in 60 s",
        "downloaded 1024 bytes to /models/acme",
        "",
    ],
)
def test_a_line_that_cannot_be_true_is_passed_over(line: str) -> None:
    assert read_download(line) is None
    assert read_download(f"{HALF}\n{line}\n") == read_download(HALF)


def test_a_remaining_time_that_no_clock_has_is_none() -> None:
    """The log is of a container of the user's image."""
    line = f"progress: 1 of {'9' * 18} bytes, 1 of them in {'9' * 8} s\n"
    progress = read_download(line)
    assert progress is not None
    assert progress.remaining is None
