"""Which phase of a start vLLM's log shows, line by line."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.load import startup_logs
from tests.support.load.startup_logs import DOWNLOADED, LOADED, REQUESTED, STARTED, bar
from tonnage.api.conditions import StartPhase
from tonnage.telemetry.startup_progress import LoadedFiles, read_progress

HEALTHY = Path(__file__).parents[3] / "e2e" / "logs" / "healthy.log"
START = datetime(2026, 11, 21, 2, 46, tzinfo=UTC)

LINES = (REQUESTED, DOWNLOADED, bar(12), LOADED, STARTED)


def log_of(*lines: str) -> str:
    """The lines, one a second."""
    return startup_logs.log_of(*lines, start=START)


def real_log() -> str:
    """The log of a real vLLM on CPUs, in the form of the API server."""
    lines = HEALTHY.read_text("utf-8").splitlines()
    return "".join(
        f"{time} {text}\n" for time, _, _, text in (line.split(" ", 3) for line in lines)
    )


@pytest.mark.parametrize(
    ("count", "want"),
    [
        (0, None),
        (1, StartPhase.DOWNLOADING),
        (2, StartPhase.LOADING),
        (3, StartPhase.LOADING),
        (4, StartPhase.COMPILING),
        (5, StartPhase.PROBING),
    ],
)
def test_the_last_line_decides_the_phase(count: int, want: StartPhase | None) -> None:
    assert read_progress(log_of("INFO unrelated", *LINES[:count], "INFO unrelated")).phase is want


def test_a_phase_begins_with_its_first_line() -> None:
    progress = read_progress(log_of(*LINES, *LINES))
    assert progress.reached == {
        StartPhase.DOWNLOADING: START,
        StartPhase.LOADING: START + timedelta(seconds=1),
        StartPhase.COMPILING: START + timedelta(seconds=3),
        StartPhase.PROBING: START + timedelta(seconds=4),
    }


def test_a_real_start_passes_through_every_phase_of_the_log() -> None:
    progress = read_progress(real_log())
    assert list(progress.reached) == [
        StartPhase.DOWNLOADING,
        StartPhase.LOADING,
        StartPhase.COMPILING,
        StartPhase.PROBING,
    ]
    assert progress.files == LoadedFiles(1, 1, timedelta())


@pytest.mark.parametrize(
    "title",
    [
        "Loading safetensors checkpoint shards",
        "Loading pt checkpoint shards",
        "Multi-thread loading shards",
        "Loading safetensors using Runai Model Streamer",
    ],
)
def test_each_loader_has_a_bar(title: str) -> None:
    shown = f"{title}:  25% Completed | 2/8 [01:02:00<3:06:00, 31.00s/it]"
    files = read_progress(log_of(shown)).files
    assert files is not None
    assert (files.percent, files.remaining) == (25, timedelta(hours=3, minutes=6))


def test_the_streamer_counts_tensors() -> None:
    shown = "Loading safetensors using Runai Model Streamer:  25% Completed | 2/8 [00:20<01:00, 1s]"
    assert read_progress(log_of(shown)).files == LoadedFiles(2, 8, timedelta(seconds=20), "tensor")


def test_the_last_bar_counts() -> None:
    files = read_progress(log_of(*(bar(n, total=4, seconds=n) for n in range(4)))).files
    assert files is not None
    assert (files.percent, files.remaining) == (75, timedelta(seconds=1))


@pytest.mark.parametrize(
    "shown", ["0% Completed | 0/8 [00:00<?, ?it/s]", "0% Completed | 0/8 [00:09<?, ?it/s]"]
)
def test_without_a_rate_no_time_remains_known(shown: str) -> None:
    files = read_progress(log_of(f"Loading shards:   {shown}")).files
    assert files is not None
    assert files.remaining is None


@pytest.mark.parametrize("counts", ["9/8", "0/0", "1234567/8", "-1/8"])
def test_impossible_counts_are_ignored(counts: str) -> None:
    shown = f"Loading shards:  10% Completed | {counts} [00:01<00:01, 1.00it/s]"
    progress = read_progress(log_of(shown))
    assert (progress.phase, progress.files) == (StartPhase.LOADING, None)


@pytest.mark.parametrize("time", ["", "2026-11-21T02:46:20", "INFO", "2026-99-21T02:46:20Z"])
def test_a_line_without_a_time_changes_nothing(time: str) -> None:
    assert read_progress(f"{time} {LINES[0]}").phase is None


def test_a_later_end_of_the_log_adds_to_an_earlier_one() -> None:
    known = read_progress(log_of(REQUESTED, bar(3)))
    later = read_progress(startup_logs.log_of(bar(9), LOADED, start=START + timedelta(hours=1)))
    both = later.after(known)
    assert list(both.reached) == [StartPhase.DOWNLOADING, StartPhase.LOADING, StartPhase.COMPILING]
    assert both.reached[StartPhase.LOADING] == START + timedelta(seconds=1)
    assert both.files == later.files
    assert read_progress("").after(known) == known


def test_the_phases_of_a_log_are_those_that_its_rules_name() -> None:
    """What the file of rules cannot say is left to the state of the pod."""
    rules = (Path("operator/tonnage/catalog/data") / "startup_phases.yaml").read_text("utf-8")
    named = dict.fromkeys(re.findall(r"^- phase: (\w+)$", rules, re.MULTILINE))
    assert list(named) == [phase.value for phase in StartPhase if phase.value in named]


def test_the_phases_of_sglang_are_those_of_its_own_words() -> None:
    lines = [
        "[2026-11-27 10:00:00 TP0] Load weight begin. avail mem=78.10 GB",
        "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:10<00:10, 10.00s/it]",
        "[2026-11-27 10:00:30 TP0] Load weight end. elapsed=20.00 s",
        "INFO:     Application startup complete.",
        "[2026-11-27 10:01:00] The server is fired up and ready to roll!",
    ]
    progress = read_progress(log_of(*lines), "sglang")
    assert [*progress.reached] == [
        StartPhase.DOWNLOADING,
        StartPhase.LOADING,
        StartPhase.COMPILING,
        StartPhase.PROBING,
    ]
    assert progress.files is not None
    assert progress.files.total == 2
    assert read_progress(log_of(*lines[:4]), "sglang").phase is StartPhase.COMPILING
