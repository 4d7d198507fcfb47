"""Predictions against what vLLM printed at start-up."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from accuracy.asking import Answer, figure
from accuracy.measures import Error, relative_error
from accuracy.records import StartUp

Pair = tuple[StartUp, Answer]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts against outcomes; ids of those that were wrong. What is unanswered is wrong."""

    fits: int
    no_fits: int
    false_fits: tuple[str, ...]
    false_no_fits: tuple[str, ...]

    @property
    def balanced(self) -> float | None:
        """Mean of the share right among starts that fit and among those that do not."""
        if not self.fits or not self.no_fits:
            return None
        right = 1 - len(self.false_no_fits) / self.fits
        return (right + 1 - len(self.false_fits) / self.no_fits) / 2


def weights_errors(pairs: Iterable[Pair]) -> list[Error]:
    """Relative errors of the weights of one GPU."""
    return [
        Error(record.case.id, relative_error(first_stage_weights(answer), printed))
        for record, answer in pairs
        if "weights" in record.observed.use_for and (printed := record.observed.weights_gi_b)
    ]


def first_stage_weights(answer: Answer) -> float | None:
    """The weights that vLLM prints: of several pipeline stages those of the first."""
    stages = answer.get("stages")
    return float(stages[0]["weightsGiB"]) if stages else figure(answer, "weightsGiB")


def kv_rate_errors(pairs: Iterable[Pair]) -> list[Error]:
    """Relative errors of the bytes a token costs."""
    return [
        Error(record.case.id, relative_error(figure(answer, "kvBytesPerTokenPerGPU"), printed))
        for record, answer in pairs
        if "kvRate" in record.observed.use_for and (printed := record.observed.kv_bytes_per_token)
    ]


def kv_left_errors(pairs: Iterable[Pair]) -> list[Error]:
    """Errors of the memory left for the KV cache, as shares of the budget."""
    return [
        Error(record.case.id, _share_of_budget(record, answer))
        for record, answer in pairs
        if "budget" in record.observed.use_for
    ]


def verdicts(pairs: Iterable[Pair]) -> Verdicts:
    """The verdicts; refused counts as not fitting."""
    judged = [pair for pair in pairs if "fit" in pair[0].observed.use_for]
    fitting = [pair for pair in judged if pair[0].observed.outcome == "fits"]
    failing = [pair for pair in judged if pair[0].observed.outcome != "fits"]
    return Verdicts(
        fits=len(fitting),
        no_fits=len(failing),
        false_fits=_ids(failing, lambda verdict: verdict not in ("does_not_fit", "refused")),
        false_no_fits=_ids(fitting, lambda verdict: verdict != "fits"),
    )


def groups(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    """The pairs by vendor, engine generation, quantisation and attention."""
    grouped: dict[str, list[Pair]] = {}
    for pair in pairs:
        observed = pair[0].observed
        names = [
            "all",
            str(pair[0].case.vendor),
            observed.engine_generation,
            "quantised" if observed.quantized else "16-bit",
            *([f"{observed.attention_kind} attention"] if observed.attention_kind else []),
        ]
        for name in names:
            grouped.setdefault(name, []).append(pair)
    return grouped


def _ids(pairs: Iterable[Pair], wrong: Callable[[object], bool]) -> tuple[str, ...]:
    return tuple(record.case.id for record, answer in pairs if wrong(answer.get("verdict")))


def _share_of_budget(record: StartUp, answer: Answer) -> float:
    observed, predicted = record.observed, figure(answer, "kvCacheGiB")
    printed = observed.kv_cache_gi_b
    left = printed if printed is not None else observed.kv_cache_gi_b_from_tokens
    if predicted is None or left is None or not observed.budget_gi_b:
        return 1.0
    return abs(predicted - left) / observed.budget_gi_b
