"""What `tonnage explain` shows of a download to the disk of a node."""

from datetime import UTC, datetime, timedelta
from io import StringIO

from rich.console import Console

from tonnage.api.conditions import StartPhase
from tonnage.api.model import PrefetchStatus
from tonnage.cli.explain.starts import format_prefetch, start_data, tabulate_starts
from tonnage.reconcile.observation.pods.starts import PodStart
from tonnage.telemetry.download_progress import DownloadProgress

NOW = datetime(2026, 11, 27, tzinfo=UTC)
QUARTER = DownloadProgress(4 * 2**30, 16 * 2**30, 2 * 2**30, timedelta(seconds=60))
START = PodStart(StartPhase.DOWNLOADING, NOW - timedelta(seconds=90), download=QUARTER)


def test_a_bar_shows_how_much_the_node_has() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(tabulate_starts({"llama-0": START}, None, None, NOW))
    row = console.export_text().splitlines()[-1].split()
    assert row[:3] == ["llama-0", "Downloading", "1m30s"]
    assert " ".join(row[3:]) == "█████░░░░░░░░░░░░░░░ 25 %, 4.0 of 16.0 GiB, about 6m0s left"


def test_programs_get_the_bytes() -> None:
    assert start_data(START)["start"] == {
        "phase": "Downloading",
        "since": "2026-11-26T23:58:30Z",
        "bytes": 4 * 2**30,
        "totalBytes": 16 * 2**30,
        "percent": 25,
        "remainingSeconds": 360,
    }


def test_a_line_counts_the_nodes_that_have_the_weights_in_advance() -> None:
    waiting = PrefetchStatus(nodes=2, ready_nodes=1, message="node-b: the disk is full")
    assert format_prefetch(waiting) == (
        "prefetch: weights on 1 of 2 nodes without replicas; node-b: the disk is full"
    )
    assert format_prefetch(PrefetchStatus(nodes=1, ready_nodes=1)) == (
        "prefetch: weights on 1 of 1 node without replicas"
    )
