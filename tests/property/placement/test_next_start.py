"""Starts after failed starts for any lack of memory: none is repeated, and their number is
bounded."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleets.placing import CATALOG, LLAMA_8B, LLAMA_70B
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.model import EngineOptions, MemoryFit, Parallelism
from tonnage.fit.questions.question import FitQuestion
from tonnage.placement.adjustments import FailedStart, MemoryShortfall, ShortfallKind
from tonnage.placement.oom_fallback.next_start import next_start
from tonnage.placement.oom_fallback.plan import load_oom_fallback_plan

GIB = 2**30

AMOUNTS = st.none() | st.integers(0, 10**15) | st.integers(0, 4 * GIB)
SHORTFALLS = st.none() | st.builds(
    MemoryShortfall, st.sampled_from(ShortfallKind), AMOUNTS, AMOUNTS
)
OPTIONS = st.builds(
    EngineOptions,
    st.sampled_from(["v0.27.1", "v0.32.0"]),
    st.sampled_from([2048, 32768, 131072]),
    st.none() | st.floats(0.1, 1.0),
    max_num_seqs=st.none() | st.integers(1, 4096),
    max_num_batched_tokens=st.none() | st.integers(1, 65536),
    enforce_eager=st.booleans(),
    enable_chunked_prefill=st.none() | st.booleans(),
)


@given(
    st.sampled_from([LLAMA_8B, LLAMA_70B]),
    st.sampled_from(["h100-sxm-80gb", "mi300x", "l40s"]),
    OPTIONS,
    st.lists(SHORTFALLS, min_size=8, max_size=8),
)
def test_no_start_is_repeated_and_the_number_of_starts_is_bounded(
    checkpoint: object, device: str, options: EngineOptions, shortfalls: list[MemoryShortfall]
) -> None:
    accelerator = CATALOG.accelerator(device)
    assert accelerator.memory_bytes is not None
    size = accelerator.memory_bytes
    question = FitQuestion(
        checkpoint,
        accelerator,
        size,
        Parallelism(),
        options,  # type: ignore[arg-type]  # one of the two above
        memory=VLLM_MEMORY,
    )
    tried: list[FailedStart] = []
    for shortfall in shortfalls:
        start = next_start(question, tried, None, CATALOG)
        if start is None:
            break
        assert not tried or isinstance(start.verdict, MemoryFit)
        assert start.adjustments not in [one.adjustments for one in tried]
        assert not set(start.adjustments.values) & _written(options)
        tried.append(FailedStart(device, size, Parallelism(), start.adjustments, shortfall))
    else:
        raise AssertionError("the OOM fallback plan has no end")
    assert len(tried) <= load_oom_fallback_plan().starts_of_first_parallelism


def _written(options: EngineOptions) -> set[str]:
    written = {
        "gpuMemoryUtilization": options.gpu_memory_utilization,
        "maxNumSeqs": options.max_num_seqs,
        "maxNumBatchedTokens": options.max_num_batched_tokens,
    }
    return {name for name, value in written.items() if value is not None}
