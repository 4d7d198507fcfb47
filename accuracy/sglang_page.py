"""The section of docs/accuracy.md on start-ups of SGLang that were published."""

from collections.abc import Callable, Sequence
from typing import Final

from accuracy.measures import Error, median, share_within
from accuracy.records import GIB
from accuracy.sglang_startups import (
    ROUNDING_GIB,
    LogVerdicts,
    SGLangStartUp,
    log_rate_errors,
    log_token_errors,
    log_verdicts,
    log_weights_errors,
    sglang_startups,
)

_SECTION: Final = """\
## Start-ups of SGLang

{count} public logs of SGLang from {first} to {last}, NVIDIA and AMD, with the weights, the free
memory, the tokens and the failures that it printed for a GPU. {held} of them are held out: those
whose address has a SHA-256 that 3 divides. They were judged once, after the last change, and
nothing was derived from them. All held-out starts with a verdict came up: the few logs of failures
that say enough are in the other part.

| figure | mended with | held out |
| --- | --- | --- |
{figures}

No log is of 0.5.23, and earlier releases choose other default fractions. What did not change is
judged: the bytes of a token, the weights, and the pool as the printed fraction and free memory give
it. A verdict says whether the calculated weights leave a pool in the printed free memory. Two logs
of 2026 (sgl-b200, sgl-b300) print no fraction: their tokens judge the default. Of cards that are
not calculated the arithmetic is judged, with Hopper's or Blackwell's pages.

"By the catalogue" are the tokens that `tonnage fit --engine sglang` plans with the arguments of the
log on GPUs that are otherwise idle. In sgl-7495, 4 GiB are in use before the start. 0.4.6 did not
take from the fraction what aiter takes in 0.5.23 (sgl-6001). Before loading, the logs of AMD GPUs
with TP 8 have less free memory than planned: 5.4 GiB less in sgl-2384, 4.4 GiB in sgl-6001, 1.4 GiB
in sgl-7691. No log of a later release shows what it is now, so the plan is as it was.

The logs led to two changes, which SGLang's source confirms: it appends no padding to the rows of
experts on ROCm (sgl-2384, off by 2.8 % before), and it keeps copies of `kv_b_proj` for latent
attention in 16 bits (sgl-3204, off by 0.7 % before).

Sizes are in GiB, predicted / printed; **held** marks held-out logs.

| log | start-up | weights | KV cache | tokens | by the catalogue | verdict |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

{remarks}
"""


def render_sglang_startups() -> str:
    """The section as Markdown."""
    mended, held = sglang_startups(held_out=False), sglang_startups(held_out=True)
    records = sorted((*mended, *held), key=lambda record: (record.date, record.id))
    return _SECTION.format(
        count=len(records),
        first=records[0].date,
        last=records[-1].date,
        held=len(held),
        figures="\n".join(_row((what, show(mended), show(held))) for what, show in _FIGURES),
        rows="\n".join(_row(_describe(record)) for record in records),
        remarks="\n".join(f"- **{r.id}**: {r.remark}" for r in records if r.remark),
    )


def _worst(errors: Sequence[Error]) -> str:
    return _percent(max((error.size for error in errors), default=None))


def _share(errors: Sequence[Error], bound: float) -> str:
    share = share_within(errors, bound)
    return "-" if share is None else f"{round(share * len(errors))} of {len(errors)}"


def _verdicts(verdicts: LogVerdicts) -> str:
    answered = verdicts.judged - len(verdicts.not_calculated)
    right = f"{answered - len(verdicts.wrong)} of {answered} right"
    missing = len(verdicts.not_calculated)
    return f"{right}, {missing} not calculated" if missing else right


_FIGURES: Final[tuple[tuple[str, Callable[[Sequence[SGLangStartUp]], str]], ...]] = (
    ("weights, median error", lambda logs: _percent(median(log_weights_errors(logs)))),
    ("weights, worst", lambda logs: _worst(log_weights_errors(logs))),
    (
        "KV bytes per token, exact but for rounding",
        lambda logs: _share(log_rate_errors(logs), ROUNDING_GIB),
    ),
    ("tokens within 2 %", lambda logs: _share(log_token_errors(logs), 0.02)),
    ("tokens, worst", lambda logs: _worst(log_token_errors(logs))),
    ("verdicts", lambda logs: _verdicts(log_verdicts(logs))),
)


def _describe(record: SGLangStartUp) -> Sequence[str]:
    observed, weights = record.observed, "-"
    if "weights" in record.use_for and observed.loaded_gi_b is not None:
        weights = f"{record.weights_bytes() / GIB:.2f} / {observed.loaded_gi_b:.2f}"
    cache, tokens = _pool(record)
    planned = record.planned_tokens() if observed.tokens is not None else None
    return (
        f"[{record.id}]({record.source})" + (", **held**" if record.held_out else ""),
        _name(record),
        weights,
        cache,
        tokens,
        "-" if planned is None else f"{planned:,}",
        _verdict(record),
    )


def _name(record: SGLangStartUp) -> str:
    size, ranks = record.tensor_parallel_size, record.attention_data_parallel_size
    degree = f"TP {size}" if ranks == 1 else f"TP {size}, {ranks} attention ranks"
    release = record.release or record.date
    model = record.published or record.model
    return f"{model}, {record.card or 'unknown card'}, {degree}, {release}"


def _pool(record: SGLangStartUp) -> tuple[str, str]:
    """Size and tokens of the KV cache."""
    observed, memory = record.observed, record.printed_pool_bytes()
    cache = tokens = "-"
    if "kvRate" in record.use_for and observed.tokens and observed.kv_gi_b:
        size = observed.tokens * record.pools(0).bytes_per_token / GIB
        cache = f"{size:.2f} / {observed.kv_gi_b:.2f}"
    if "kvTokens" in record.use_for and memory is not None:
        printed = "-" if observed.tokens is None else f"{observed.tokens:,}"
        tokens = f"{record.pools(memory).tokens:,} / {printed}"
    return cache, tokens


def _verdict(record: SGLangStartUp) -> str:
    if "verdict" not in record.use_for:
        return "-"
    starts = record.starts()
    if starts is None:
        return "not calculated"
    outcome = record.observed.outcome == "starts"
    shown = "starts" if outcome else "does not start"
    return f"{shown}, {'right' if starts is outcome else '**wrong**'}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
