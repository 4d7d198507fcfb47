"""Every estimate is possible, and better hardware is never slower."""

from dataclasses import replace
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleets.placing import CATALOG, DEEPSEEK_V3, LLAMA_8B, LLAMA_70B, checkpoint_of
from tonnage.fit.model import EngineOptions, MemoryAccount, Parallelism
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.figures import load_throughput_data
from tonnage.throughput.model import Demand, ThroughputEstimate

CHECKPOINTS = (
    LLAMA_8B,
    LLAMA_70B,
    DEEPSEEK_V3,
    checkpoint_of("gpt-oss-120b"),
    checkpoint_of("falcon-mamba-7b"),
    checkpoint_of("deepseek-v4-flash"),
)
ACCELERATORS = tuple(
    accelerator
    for accelerator in CATALOG.accelerators.values()
    if load_throughput_data().figures(accelerator) is not None
    and accelerator.bf16_flops
    and accelerator.link_bandwidth
)
IMPROVED = ("memory_bandwidth", "bf16_flops", "fp8_flops", "link_bandwidth", "pair_bandwidth")

questions = st.fixed_dictionaries(
    {
        "checkpoint": st.sampled_from(CHECKPOINTS),
        "accelerator": st.sampled_from(ACCELERATORS),
        "parallelism": st.builds(
            Parallelism,
            st.sampled_from([1, 2, 4, 8]),
            st.sampled_from([1, 2, 3]),
            st.sampled_from([1, 2]),
        ),
        "options": st.builds(
            EngineOptions, st.sampled_from(["0.6.4", "0.10.0", "0.32.0"]), st.just(8192)
        ),
        "account": st.builds(
            lambda weights, rate, tokens: MemoryAccount(
                80 * 2**30, 0, weights, 0, 0, 0, 0, 0, rate, tokens
            ),
            st.integers(10**8, 10**12),
            st.integers(0, 10**6),
            st.integers(0, 10**8),
        ),
        "demand": st.builds(
            Demand, st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**5)
        ),
    }
)


def ask(question: dict[str, object]) -> ThroughputEstimate:
    estimate = estimate_throughput(**question, catalog=CATALOG)  # type: ignore[arg-type]  # any field
    assert estimate is not None
    return estimate


@given(questions)
def test_an_estimate_is_possible(question: dict[str, object]) -> None:
    estimate, demand = ask(question), question["demand"]
    assert isinstance(demand, Demand)
    for figure in (
        estimate.tokens_per_second,
        estimate.time_to_first_token_seconds,
        estimate.time_per_output_token_seconds,
    ):
        assert isfinite(figure)
        assert figure > 0
    assert 1 <= estimate.batch <= demand.concurrency
    assert estimate.tokens_per_second * estimate.time_per_output_token_seconds == pytest.approx(
        estimate.batch
    )


@given(questions, st.sampled_from(IMPROVED), st.floats(1, 10))
def test_better_hardware_is_never_slower(
    question: dict[str, object], peak: str, factor: float
) -> None:
    accelerator = question["accelerator"]
    value = getattr(accelerator, peak)
    if value is None:
        return
    better = replace(accelerator, **{peak: value * factor})  # type: ignore[type-var]  # a dataclass
    improved = ask({**question, "accelerator": better})
    assert improved.tokens_per_second >= ask(question).tokens_per_second * (1 - 1e-9)


@given(questions)
def test_one_more_request_at_once_never_costs_throughput(question: dict[str, object]) -> None:
    demand = question["demand"]
    assert isinstance(demand, Demand)
    more = replace(demand, concurrency=demand.concurrency + 1)
    busier, estimate = ask({**question, "demand": more}), ask(question)
    assert busier.tokens_per_second >= estimate.tokens_per_second * (1 - 1e-9)
    assert busier.time_per_output_token_seconds >= estimate.time_per_output_token_seconds * (
        1 - 1e-9
    )


@given(questions, st.floats(0.01, 1))
def test_a_part_of_a_gpu_is_never_faster_than_all_of_it(
    question: dict[str, object], share: float
) -> None:
    part = ask({**question, "share": share})
    assert part.tokens_per_second <= ask(question).tokens_per_second * (1 + 1e-9)
