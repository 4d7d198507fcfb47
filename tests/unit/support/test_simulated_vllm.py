"""The simulated vLLM behaves as the throughput model says: the bench for scaling stands on it."""

import pytest

from tests.support.fleets.placing import CATALOG, LLAMA_8B, LLAMA_70B
from tests.support.load.replica_capacity import ReplicaCapacity, replica_capacity
from tests.support.load.simulated_vllm import Served, SimulatedVllm
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions, Parallelism

OPTIONS = EngineOptions(CATALOG.default_release, max_model_len=32768)
INPUT_TOKENS, OUTPUT_TOKENS = 2000, 500
SETTLED = 200
"""Seconds after which a constant load has filled the batch as far as it will."""


def capacity(checkpoint: Checkpoint, accelerator: str, tensor: int) -> ReplicaCapacity:
    split = Parallelism(tensor)
    return replica_capacity(checkpoint, accelerator, split, OPTIONS, INPUT_TOKENS, OUTPUT_TOKENS)


def serve(replica: SimulatedVllm, per_second: float, seconds: int) -> Served:
    """What became of a constant load."""
    served, come = Served(), 0.0
    for _ in range(seconds):
        before, come = come, come + per_second
        step = replica.advance(1.0, int(come) - int(before))
        served.first_token_seconds += step.first_token_seconds
        served.finished += step.finished
        served.tokens_generated += step.tokens_generated
    return served


@pytest.mark.parametrize(
    ("checkpoint", "accelerator", "tensor"),
    [(LLAMA_70B, "mi300x", 1), (LLAMA_70B, "h100-sxm-80gb", 4), (LLAMA_8B, "l40s", 1)],
)
def test_the_highest_throughput_equals_the_estimate(
    checkpoint: Checkpoint, accelerator: str, tensor: int
) -> None:
    of = capacity(checkpoint, accelerator, tensor)
    replica = SimulatedVllm(of)
    serve(replica, 2 * of.most_per_second, SETTLED)
    assert replica.running == pytest.approx(of.most_running, rel=0.05)
    served = serve(replica, 2 * of.most_per_second, SETTLED)
    assert served.tokens_generated / SETTLED == pytest.approx(
        of.most_per_second * OUTPUT_TOKENS, rel=0.05
    )


def test_queue_batch_and_latencies_grow_with_load() -> None:
    of = capacity(LLAMA_8B, "l40s", 1)
    seen = []
    for share in (0.2, 0.5, 0.8, 0.95, 1.3):
        replica = SimulatedVllm(of)
        serve(replica, share * of.most_per_second, SETTLED)
        served = serve(replica, share * of.most_per_second, SETTLED)
        slowest = max(one.seconds for one in served.finished)
        first = max(served.first_token_seconds)
        seen.append((replica.running, replica.kv_cache_usage, first, slowest))
    for metric in zip(*seen, strict=True):
        assert list(metric) == sorted(metric), f"not growing: {metric}"
    assert replica.waiting > 100, "at 1.3 times what it can do, requests queue"


def test_every_request_is_answered_once() -> None:
    replica = SimulatedVllm(capacity(LLAMA_8B, "l40s", 1))
    busy, idle = serve(replica, 4.0, 60), serve(replica, 0.0, 600)
    assert len(busy.finished) + len(idle.finished) == 4 * 60
    assert len(busy.first_token_seconds) + len(idle.first_token_seconds) == 4 * 60
    generated = busy.tokens_generated + idle.tokens_generated
    assert generated == pytest.approx(4 * 60 * OUTPUT_TOKENS)
    assert (replica.running, replica.waiting) == (0, 0)
    assert replica.kv_cache_usage == pytest.approx(0, abs=1e-9)


def test_a_request_waits_before_its_first_token_and_ends_after_it() -> None:
    served = serve(SimulatedVllm(capacity(LLAMA_8B, "l40s", 1)), 2.5, 300)
    assert all(
        0.0 <= one.queue_seconds < one.first_token_seconds < one.seconds for one in served.finished
    )


def test_the_length_of_a_tick_does_not_matter() -> None:
    of = capacity(LLAMA_8B, "l40s", 1)
    coarse, fine = SimulatedVllm(of), SimulatedVllm(of)
    for _ in range(100):
        coarse.advance(4.0, 16)
        for _ in range(16):
            fine.advance(0.25, 1)
    assert coarse.running == pytest.approx(fine.running, abs=2)
    assert coarse.kv_cache_usage == pytest.approx(fine.kv_cache_usage, rel=0.05)
