"""What a starting replica does, by its pod and its log, and how long each phase took."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.load.startup_logs import DOWNLOADED, LOADED, REQUESTED, STARTED, bar, log_of
from tonnage.api.conditions import StartPhase
from tonnage.engines.medium import Medium
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd, StartTimes
from tonnage.reconcile.observation.pods.starts import (
    find_start,
    is_starting,
    measure_phases,
)
from tonnage.telemetry.startup_progress import NO_PROGRESS, LogProgress, read_progress

CREATED = datetime(2026, 11, 21, 2, 40, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return CREATED + timedelta(seconds=seconds)


def pod(**fields: Any) -> ChildPod:
    """A pod that got its node after two seconds."""
    defaults: dict[str, Any] = {"node": "n", "ready": False, "deleting": False, "restarts": 0}
    return ChildPod(
        **{"name": "p", "placement": "x", "created": CREATED, "scheduled": at(2)}
        | defaults
        | fields
    )


WAITS = {"waiting": ("ContainerCreating", "")}
SANDBOX = StartTimes(sandboxed=at(5), initialized=at(2))
RUNS = StartTimes(sandboxed=at(5), initialized=at(2), runs=True, started=at(65))
DOWNLOADS = StartTimes(sandboxed=at(5), initializes=True, downloads=at(15))
PULLS_AFTER_INIT = StartTimes(sandboxed=at(5), initialized=at(9), initializes=True)


def progress(*lines: str) -> LogProgress:
    """Ten seconds between two lines, the first one ten seconds after the start."""
    return read_progress(log_of(*lines, start=at(75), every=10))


@pytest.mark.parametrize(
    ("starting", "phase", "since"),
    [
        (pod(node=None, scheduled=None), StartPhase.SCHEDULING, 0),
        (pod(), StartPhase.CREATING, 2),
        (pod(**WAITS), StartPhase.CREATING, 2),
        (pod(**WAITS, times=SANDBOX), StartPhase.PULLING, 5),
        (pod(**WAITS, times=StartTimes(sandboxed=at(5))), StartPhase.PULLING, 5),
        (
            pod(**WAITS, times=StartTimes(sandboxed=at(5), initializes=True)),
            StartPhase.INITIALIZING,
            5,
        ),
        (pod(**WAITS, times=PULLS_AFTER_INIT), StartPhase.PULLING, 9),
        (pod(**WAITS, times=DOWNLOADS), StartPhase.DOWNLOADING, 15),
        (
            pod(**WAITS, times=replace(DOWNLOADS, has_weights=True)),
            StartPhase.INITIALIZING,
            5,
        ),
        (pod(times=replace(DOWNLOADS, runs=True, started=at(65))), StartPhase.STARTING, 65),
        (pod(times=RUNS), StartPhase.STARTING, 65),
        (pod(times=StartTimes(runs=True)), StartPhase.STARTING, 2),
    ],
)
def test_the_pod_says_what_happens_until_its_container_runs(
    starting: ChildPod, phase: StartPhase, since: float
) -> None:
    start = find_start(starting, NO_PROGRESS, Medium.HUB)
    assert (start.phase, start.since) == (phase, at(since))


@pytest.mark.parametrize(
    ("lines", "medium", "phase", "since"),
    [
        ((), Medium.HUB, StartPhase.STARTING, 65),
        ((REQUESTED,), Medium.HUB, StartPhase.DOWNLOADING, 75),
        ((REQUESTED,), Medium.VOLUME, StartPhase.LOADING, 75),
        ((REQUESTED, DOWNLOADED), Medium.HUB, StartPhase.LOADING, 85),
        ((REQUESTED, DOWNLOADED), Medium.PATH, StartPhase.LOADING, 75),
        ((REQUESTED, bar(3), LOADED), Medium.VOLUME, StartPhase.COMPILING, 95),
        ((REQUESTED, bar(3), LOADED, STARTED), Medium.HUB, StartPhase.PROBING, 105),
        ((bar(3),), Medium.OBJECT_STORE, StartPhase.LOADING, 75),
    ],
)
def test_the_log_says_what_vllm_does_and_only_a_hub_is_downloaded_from(
    lines: tuple[str, ...], medium: Medium, phase: StartPhase, since: float
) -> None:
    start = find_start(pod(times=RUNS), progress(*lines), medium)
    assert (start.phase, start.since) == (phase, at(since))


def test_files_are_shown_only_while_they_are_loaded() -> None:
    loading = find_start(pod(times=RUNS), progress(REQUESTED, bar(12)), Medium.HUB)
    assert loading.files is not None
    assert loading.files.percent == 40
    assert find_start(pod(times=RUNS), progress(bar(30), LOADED), Medium.HUB).files is None


@pytest.mark.parametrize(
    "fields",
    [
        {"ready": True},
        {"deleting": True},
        {"lost": True},
        {"serves": False},
        {"end": ContainerEnd(1, "Error", "")},
        {"keeper_end": ContainerEnd(3, "Error", "")},
        {"waiting": ("ImagePullBackOff", "not found")},
        {"waiting": ("CreateContainerConfigError", "secret not found")},
    ],
)
def test_what_has_failed_or_serves_is_no_start(fields: dict[str, Any]) -> None:
    assert is_starting(pod())
    assert not is_starting(replace(pod(), **fields))


def seconds(times: StartTimes, known: LogProgress | None, medium: Medium) -> dict[str, float]:
    measured = measure_phases(pod(ready=True, times=times), known, medium)
    return {phase.value: taken for phase, taken in measured.items()}


READY = replace(RUNS, answers=at(125))


def test_the_phases_of_a_start_add_up_to_the_whole() -> None:
    known = progress(REQUESTED, DOWNLOADED, LOADED, STARTED)
    measured = seconds(READY, known, Medium.HUB)
    assert measured == {
        "Scheduling": 2,
        "Creating": 3,
        "Pulling": 60,
        "Starting": 10,
        "Downloading": 10,
        "Loading": 10,
        "Compiling": 10,
        "Probing": 20,
    }
    assert sum(measured.values()) == 125
    on_volume = seconds(READY, known, Medium.VOLUME)
    assert (on_volume["Loading"], sum(on_volume.values())) == (20, 125)
    assert "Downloading" not in on_volume


def test_init_containers_have_a_phase_of_their_own() -> None:
    measured = seconds(replace(READY, initializes=True, initialized=at(35)), None, Medium.HUB)
    assert measured == {"Scheduling": 2, "Creating": 3, "Initializing": 30, "Pulling": 30}


@pytest.mark.parametrize(
    ("downloads", "want"),
    [
        (15, {"Initializing": 10, "Downloading": 20, "Pulling": 30}),
        (200, {"Initializing": 30, "Pulling": 30}),  # since a restart
    ],
)
def test_a_download_to_the_node_is_a_phase(downloads: float, want: dict[str, float]) -> None:
    times = replace(READY, initializes=True, initialized=at(35), downloads=at(downloads))
    measured = seconds(times, None, Medium.NODE_DISK)
    assert measured == {"Scheduling": 2, "Creating": 3} | want
    whole = seconds(times, progress(REQUESTED, DOWNLOADED, LOADED), Medium.NODE_DISK)
    assert whole.get("Downloading") == want.get("Downloading")
    assert sum(whole.values()) == 125


def test_without_the_time_of_the_sandbox_pulling_counts_as_creating() -> None:
    for sandboxed in (None, at(65)):
        measured = seconds(replace(READY, sandboxed=sandboxed), None, Medium.HUB)
        assert measured == {"Scheduling": 2, "Creating": 63}


def test_a_log_without_a_known_line_leaves_one_phase() -> None:
    assert seconds(READY, NO_PROGRESS, Medium.HUB)["Starting"] == 60


def test_clocks_that_differ_give_no_negative_time() -> None:
    early = read_progress(log_of(REQUESTED, LOADED, start=at(0), every=200))
    assert min(seconds(READY, early, Medium.HUB).values()) == 0


@pytest.mark.parametrize("missing", ["started", "answers"])
def test_a_start_without_its_times_is_not_measured(missing: str) -> None:
    assert seconds(replace(READY, **{missing: None}), NO_PROGRESS, Medium.HUB) == {}
