"""A model whose start runs out of memory: the operator tries the next plan until one runs or none
is left."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, container, has
from e2e.models import OWN_IMAGE, inference
from e2e.nodes.behaviours import KEY, LOG_KEY, WELL_KEY

ONE_H100 = {"groups": [{"name": "h100", "accelerator": "h100-sxm-80gb"}]}
MEMORY_FLAGS = ("--gpu-memory-utilization", "--max-num-seqs", "--max-num-batched-tokens")
SHORT_BATCH = ("--max-num-seqs=128", "--max-num-batched-tokens=1024")
EVERY_START = [
    ["--tensor-parallel-size=1"],
    ["--tensor-parallel-size=1", "--max-num-batched-tokens=4096"],
    ["--tensor-parallel-size=1", "--max-num-seqs=512", "--max-num-batched-tokens=4096"],
    [
        "--tensor-parallel-size=1",
        "--gpu-memory-utilization=0.88",
        "--max-num-seqs=512",
        "--max-num-batched-tokens=4096",
    ],
]


def dying(*, well_with: str = "never", log: str = "out-of-memory", **settings: Any) -> Json:
    """An object whose pods die of memory with that log, unless they have that argument; `settings`
    are of its engine."""
    annotations = {KEY: "out-of-memory", LOG_KEY: log, WELL_KEY: well_with}
    template = {"metadata": {"annotations": annotations}}
    engine = {"vllm": {"image": OWN_IMAGE, **settings}}
    return inference("llama", "llama-3.1-8b", template=template, engine=engine)


def start_of(deployment: Json) -> list[str]:
    """What tells one start from another."""
    telling = ("--tensor-parallel-size", *MEMORY_FLAGS)
    return [given for given in container(deployment)["args"] if given.startswith(telling)]


def starts_of(recorder: WatchRecorder) -> list[list[str]]:
    """Each start that differs from the one before it, in order."""
    starts: list[list[str]] = []
    for version in recorder.versions:
        start = start_of(version)
        if not starts or starts[-1] != start:
            starts.append(start)
    return starts


@pytest.fixture
def recorder(fleet: UseFleet, user: User) -> WatchRecorder:
    """Of the Deployment of `llama`, on a fleet of eight H100."""
    fleet(ONE_H100)
    return WatchRecorder(user.admin, "deployments", "llama-h100-sxm-80gb", user.namespace)


def test_three_failed_starts_lead_to_settings_that_run(user: User, recorder: WatchRecorder) -> None:
    with recorder:
        user.apply(dying(log="device-full", well_with="--gpu-memory-utilization=0.88"))
        status = user.wait_ready("llama", timeout=240)
    assert starts_of(recorder) == EVERY_START
    (placement,) = status["placements"]
    assert placement["adjustments"] == {
        "gpuMemoryUtilization": 0.88,
        "maxNumSeqs": 512,
        "maxNumBatchedTokens": 4096,
    }
    assert "because starts with higher values ran out of memory" in placement["message"]
    failed = status["failedPlans"]
    assert [entry["reason"] for entry in failed] == ["OutOfMemory"] * 3
    assert all("Tried to allocate 490.00 MiB" in entry["message"] for entry in failed)


def test_three_failed_starts_lead_to_devices_that_run(user: User, recorder: WatchRecorder) -> None:
    with recorder:
        user.apply(dying(well_with="--tensor-parallel-size=4"))
        user.wait_ready("llama", timeout=240)
    assert starts_of(recorder) == [
        ["--tensor-parallel-size=1"],
        ["--tensor-parallel-size=2"],
        ["--tensor-parallel-size=2", *SHORT_BATCH],
        ["--tensor-parallel-size=4"],
    ]


def test_a_model_that_never_fits_is_given_up_with_its_history(
    user: User, recorder: WatchRecorder
) -> None:
    with recorder:
        user.apply(dying())
        given_up = has("Placed", "False", "OutOfMemory")
        status = user.wait("llama", given_up, timeout=360, why="no plan to be left")
        user.await_quiet()
    assert condition(status, "Placed")["message"] == (
        "no plan is left to try; nvidia-h100-sxm-80gb: ran out of memory with TP 1"
        "; with TP 2, then with maxNumBatchedTokens 1024 and maxNumSeqs 128"
        "; with TP 4, then with maxNumBatchedTokens 1024 and maxNumSeqs 128"
        "; with TP 8, then with maxNumBatchedTokens 1024 and maxNumSeqs 128"
        " (the last start had 1.0 of the 1.9 GiB that its KV cache needs) (8 GPUs on 1 node)"
    )
    assert condition(status, "Stalled")["status"] == "True"
    starts = starts_of(recorder)
    assert len(starts) == len({tuple(start) for start in starts}) == 7


def test_settings_that_the_user_wrote_are_never_changed(
    user: User, recorder: WatchRecorder
) -> None:
    written = {"gpuMemoryUtilization": 0.9, "maxNumSeqs": 64, "maxNumBatchedTokens": 2048}
    with recorder:
        user.apply(dying(log="device-full", well_with="--tensor-parallel-size=2", **written))
        user.wait_ready("llama", timeout=240)
    kept = ["--gpu-memory-utilization=0.9", "--max-num-seqs=64", "--max-num-batched-tokens=2048"]
    assert starts_of(recorder) == [
        ["--tensor-parallel-size=1", *kept],
        ["--tensor-parallel-size=2", *kept],
    ]
