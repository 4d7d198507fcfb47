"""What is read of the scheduler's message: who lacks GPUs, and who lacks anything else."""

import pytest

from tests.support.production.contract import UNSCHEDULABLE
from tonnage.reconcile.observation.pods.scheduler_message import read_verdict

GPU = "amd.com/gpu"
NONE_AFTER = " preemption: 0/9 nodes are available: 9 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "want_gpus", "want_more"),
    [
        ("0/9 nodes are available: 9 Insufficient amd.com/gpu.", 9, 0),
        ("0/9 nodes are available: 4 Insufficient cpu, 5 Insufficient amd.com/gpu.", 5, 4),
        (
            "0/9 nodes are available: 2 Insufficient cpu, 3 Too many pods, 4 node(s) had"
            " untolerated taint {team: chat}.",
            0,
            3,
        ),
        (
            "0/9 nodes are available: 3 node(s) were unschedulable, 6 node(s) didn't match Pod's"
            " node affinity/selector.",
            0,
            0,
        ),
        ("0/9 nodes are available: 9 node(s) had volume node affinity conflict.", 0, 9),
    ],
)
def test_nodes_are_counted_by_what_they_lack(message: str, want_gpus: int, want_more: int) -> None:
    for text in (message, message + NONE_AFTER):
        verdict = read_verdict(text, GPU)
        assert (verdict.lacking_gpus, verdict.lacking_more) == (want_gpus, want_more)


@pytest.mark.parametrize("case", ["a claim without a volume", "a claim that does not exist"])
def test_a_claim_is_lacking_on_every_node(case: str) -> None:
    verdict = read_verdict(UNSCHEDULABLE[case].message, GPU)
    assert verdict.lacking_gpus == 0
    assert verdict.lacking_more > 10_000


@pytest.mark.parametrize(
    ("message", "waits_for_gpus"),
    [
        ("0/1 nodes are unavailable: 1 Insufficient amd.com/gpu.", True),
        ("3/3 tasks in gang unschedulable: pod group is not ready", False),
        ("", False),
    ],
)
def test_of_another_schedulers_message_it_counts_whether_gpus_are_named(
    message: str, waits_for_gpus: bool
) -> None:
    verdict = read_verdict(message, GPU)
    assert (verdict.lacking_gpus > verdict.lacking_more) == waits_for_gpus


def test_nodes_without_devices_for_a_claim_lack_gpus() -> None:
    message = "0/3 nodes are available: 1 Insufficient cpu, 2 cannot allocate all claims."
    verdict = read_verdict(message, "deviceclass.resource.kubernetes.io/gpu.nvidia.com")
    assert (verdict.lacking_gpus, verdict.lacking_more) == (2, 1)
    assert read_verdict(message, GPU).lacking_gpus == 0


def test_a_missing_device_class_is_lacking_on_every_node() -> None:
    message = "request gpus: device class gpu.nvidia.com does not exist"
    verdict = read_verdict(message, "deviceclass.resource.kubernetes.io/gpu.nvidia.com")
    assert verdict.lacking_gpus == 0
    assert verdict.lacking_more > 0
