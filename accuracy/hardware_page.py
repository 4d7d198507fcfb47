"""The section of docs/accuracy.md on starts that were measured on a GPU of our own."""

from collections.abc import Callable
from typing import Final

from accuracy import hardware
from accuracy.asking import Answer, figure, loaded_gib
from accuracy.hardware import HardwareStart, Pair, answered_hardware
from accuracy.measures import Error
from accuracy.records import GIB

_INTRO: Final = """\
## Measured on an H200

{starts} starts of vLLM {versions} on one NVIDIA H200 on {days}, by `benchmarks/gpu`: random weights
in the real layout, the arguments that the operator renders, sizes as vLLM's worker counts them.
{held} of them are held out: they were chosen before the first start, and no correction uses them.
"Then" is what the calculation said on the day of the measurement.

| figure, worst of the held-out starts | then | now | asked |
| --- | --- | --- | --- |
{figures}

Sizes are in GiB, predicted then / predicted now / measured; **held** marks the held-out starts.

| start | weights | activation | non-torch | graphs | KV cache | tokens |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"""

_FIGURES: Final[tuple[tuple[str, Callable[[tuple[Pair, ...]], list[Error]], str, str], ...]] = (
    ("weights", hardware.weights_errors, "%", "≤ 0.50 %"),
    ("KV bytes per token", hardware.kv_rate_errors, "%", "0.00 %"),
    ("tokens of the KV cache", hardware.capacity_errors, "%", "≤ 2.00 %"),
    ("non-torch memory", hardware.non_torch_errors, "GiB", "≤ 0.30 GiB"),
    ("graphs", hardware.graph_errors, "GiB", "≤ 0.30 GiB"),
    ("wrong verdicts", hardware.verdict_errors, "", "0"),
)


def render_hardware() -> str:
    """The section as Markdown."""
    now = answered_hardware()
    held = tuple(pair for pair in now if pair[0].held_out)
    then = tuple((start, start.predicted_then) for start, _ in held)
    figures = [
        f"| {what} | {_worst(errors(then), unit)} | {_worst(errors(held), unit)} | {asked} |"
        for what, errors, unit, asked in _FIGURES
    ]
    return _INTRO.format(
        starts=len(now),
        versions=", ".join(sorted({str(start.case.engine.vllm_version) for start, _ in now})),
        days=", ".join(sorted({start.measured_on for start, _ in now})),
        held=len(held),
        figures="\n".join(figures),
        rows="\n".join(_row(start, answer) for start, answer in now),
    )


def _worst(errors: list[Error], unit: str) -> str:
    sizes = [error.size for error in errors]
    if unit == "%":
        return f"{100 * max(sizes):.2f} %"
    return f"{max(sizes):.2f} GiB" if unit else f"{sum(sizes):.0f}"


def _row(start: HardwareStart, answer: Answer) -> str:
    taken, then = start.observed, start.predicted_then
    sizes = {
        "activationGiB": taken.activation_bytes,
        "nonTorchGiB": taken.non_torch_bytes,
        "cudaGraphGiB": taken.graph_bytes,
        "kvCacheGiB": taken.kv_cache_bytes,
    }
    cells = [
        _cell(loaded_gib(then), loaded_gib(answer), taken.weights_bytes),
        *(
            _cell(figure(then, name), figure(answer, name), measured)
            for name, measured in sizes.items()
        ),
    ]
    tokens = [figure(then, "kvCacheTokens"), figure(answer, "kvCacheTokens"), taken.kv_cache_tokens]
    cells.append(" / ".join(f"{count or 0:,.0f}" for count in tokens))
    name = f"{start.case.id}, **held**" if start.held_out else start.case.id
    return "| " + " | ".join([str(name), *cells]) + " |"


def _cell(then_gib: float | None, now_gib: float | None, measured_bytes: int) -> str:
    return f"{then_gib or 0:.2f} / {now_gib or 0:.2f} / {measured_bytes / GIB:.2f}"
