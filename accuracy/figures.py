"""The figures that the calculation is held to: what is asked of each, and what it reaches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from accuracy import build_errors, startup_errors
from accuracy.asking import (
    answered_builds,
    answered_layouts,
    answered_stage_builds,
    answered_startups,
)
from accuracy.measures import Error, median, percentile, share_within
from accuracy.sglang import fraction_errors, token_errors
from accuracy.sglang_startups import (
    ROUNDING_GIB,
    log_rate_errors,
    log_token_errors,
    log_verdicts,
    log_weights_errors,
    sglang_startups,
)
from accuracy.startup_errors import Pair


@dataclass(frozen=True, slots=True)
class Figure:
    """A named figure. `at_most` targets are errors, the others shares that should be large."""

    name: str
    what: str
    target: float
    at_most: bool
    measure: Callable[[], float | None]

    def holds(self, value: float | None, bound: float) -> bool:
        """Whether `value` is as good as `bound`; a figure without records is not."""
        if value is None:
            return False
        return value <= bound if self.at_most else value >= bound

    def better(self, one: float, other: float) -> float:
        """The better of two values."""
        return min(one, other) if self.at_most else max(one, other)


def _startups(keep: Callable[[Pair], bool] = lambda _: True) -> list[Pair]:
    return [pair for pair in answered_startups() if keep(pair)]


def _sixteen_bit(pair: Pair) -> bool:
    return not pair[0].observed.quantized


def _quantized(pair: Pair) -> bool:
    return pair[0].observed.quantized


def _size_known(pair: Pair) -> bool:
    return _quantized(pair) and pair[0].case.model.checkpoint_bytes is not None


def _v1(pair: Pair) -> bool:
    return pair[0].observed.engine_generation == "V1"


def _hybrid(pair: Pair) -> bool:
    return pair[0].observed.attention_kind == "hybrid"


def _arguments_known(pair: Pair) -> bool:
    engine = pair[0].case.engine
    given = (engine.vllm_version, engine.gpu_memory_utilization, engine.max_model_len)
    return _v1(pair) and None not in given


def _rate_errors(hybrid: bool) -> Sequence[Error]:
    kept = _startups(lambda pair: _hybrid(pair) == hybrid and (_v1(pair) or not hybrid))
    return startup_errors.kv_rate_errors(kept)


def _weights(keep: Callable[[Pair], bool]) -> Sequence[Error]:
    return startup_errors.weights_errors(_startups(keep))


def _kv_left() -> Sequence[Error]:
    return startup_errors.kv_left_errors(_startups(_arguments_known))


def _false_fits_v1() -> float:
    return float(len(startup_errors.verdicts(_startups(_v1)).false_fits))


def _false_no_fit_share() -> float:
    verdicts = startup_errors.verdicts(_startups())
    return len(verdicts.false_no_fits) / verdicts.fits


def _stages(*, staged: bool) -> Sequence[Error]:
    return build_errors.stage_errors(answered_stage_builds(), staged=staged)


def _legal_share() -> float:
    answered = answered_layouts()
    return sum(answer.get("legal") is True for _, answer in answered) / len(answered)


FIGURES: Final = (
    Figure("weights_16bit_median", "start-ups: weights, 16-bit, median error", 0.005, True,
           lambda: median(_weights(_sixteen_bit))),
    Figure("weights_16bit_p90", "start-ups: weights, 16-bit, 90th percentile", 0.025, True,
           lambda: percentile(_weights(_sixteen_bit), 0.9)),
    Figure("weights_quantised_median", "start-ups: weights, quantised, median error", 0.02, True,
           lambda: median(_weights(_quantized))),
    Figure("weights_quantised_sized_median",
           "start-ups: weights, quantised, size of the files known, median error", 0.005, True,
           lambda: median(_weights(_size_known))),
    Figure("kv_rate_within_1", "start-ups: KV bytes per token, full attention and MLA, within 1 %",
           0.98, False, lambda: share_within(_rate_errors(hybrid=False), 0.01)),
    Figure("kv_rate_hybrid_median", "start-ups: KV capacity of hybrids (V1), median error", 0.02,
           True, lambda: median(_rate_errors(hybrid=True))),
    Figure("kv_left_median", "start-ups: memory left for KV (V1, arguments known), median error",
           0.02, True, lambda: median(_kv_left())),
    Figure("kv_left_p90", "start-ups: memory left for KV (V1, arguments known), 90th percentile",
           0.05, True, lambda: percentile(_kv_left(), 0.9)),
    Figure("false_fits_v1", "start-ups: predicted fits that died (V1)", 0, True, _false_fits_v1),
    Figure("false_no_fit_share", "start-ups: predicted no-fits that ran", 0.02, True,
           _false_no_fit_share),
    Figure("balanced_verdicts", "start-ups: balanced verdicts, all generations", 0.97, False,
           lambda: startup_errors.verdicts(_startups()).balanced),
    Figure("build_weights_16bit_within_0.1", "builds: weights, 16-bit, within 0.1 %", 0.95, False,
           lambda: share_within(build_errors.weights_errors(answered_builds(), False), 0.001)),
    Figure("build_weights_quantised_within_1", "builds: weights, quantised, within 1 %", 0.9, False,
           lambda: share_within(build_errors.weights_errors(answered_builds(), True), 0.01)),
    Figure("build_kv_rate_exact", "builds: KV bytes per token (full, MLA), exact", 0.99, False,
           lambda: share_within(build_errors.kv_rate_errors(answered_builds()), 0)),
    Figure("build_kv_tokens_hybrid_within_1", "builds: tokens of hybrids, within 1 %", 0.95, False,
           lambda: share_within(build_errors.kv_tokens_errors(answered_builds(), True), 0.01)),
    Figure("build_acceptance", "builds: accepted or refused as vLLM does", 0.99, False,
           lambda: share_within(build_errors.acceptance_errors(answered_builds()), 0)),
    Figure("stage_weights_within_0.1", "builds: weights of every pipeline stage, within 0.1 %",
           0.99, False, lambda: share_within(_stages(staged=True), 0.001)),
    Figure("rank_weights_within_0.1", "builds: weights of data-parallel ranks, within 0.1 %",
           0.99, False, lambda: share_within(_stages(staged=False), 0.001)),
    Figure("sglang_tokens_within_2", "SGLang: tokens of the KV cache, within 2 %", 0.95, False,
           lambda: share_within(token_errors(), 0.02)),
    Figure("sglang_fraction_exact", "SGLang: mem_fraction_static, exact", 0.95, False,
           lambda: share_within(fraction_errors(), 0)),
    Figure("sglang_log_weights_median", "SGLang logs: weights, median error", 0.02, True,
           lambda: median(log_weights_errors(sglang_startups(held_out=False)))),
    Figure("sglang_log_kv_rate_exact", "SGLang logs: KV bytes per token, exact but for rounding", 1,
           False,
           lambda: share_within(log_rate_errors(sglang_startups(held_out=False)), ROUNDING_GIB)),
    Figure("sglang_log_tokens_within_2", "SGLang logs: tokens of the KV cache, within 2 %", 0.95,
           False, lambda: share_within(log_token_errors(sglang_startups(held_out=False)), 0.02)),
    Figure("sglang_log_verdicts", "SGLang logs: verdicts that are right", 1, False,
           lambda: log_verdicts(sglang_startups(held_out=False)).right_share),
    Figure("layouts_legal", "layouts known to run that are called legal", 1, False, _legal_share),
)  # fmt: skip


def measure_all() -> dict[str, float | None]:
    """Every figure by its name."""
    return {figure.name: figure.measure() for figure in FIGURES}
