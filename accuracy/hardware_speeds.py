"""Times of requests on a GPU of our own, against the throughput estimate.

A token of a batch is a step in which all requests generate; a first token is a step that reads the
prompts, or several where they are longer than a step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from accuracy.hardware import Decode, HardwareStart, Prefill, hardware_starts
from accuracy.measures import Error, median, relative_error
from tonnage.catalog.load import load_catalog
from tonnage.cli.fit.question import make_question
from tonnage.fit.model import MemoryFit
from tonnage.fit.questions.question import answer
from tonnage.fit.weights.precision import loaded_quantization
from tonnage.throughput.figures import load_throughput_data
from tonnage.throughput.model import Demand
from tonnage.throughput.speed import device_speed
from tonnage.throughput.step import StepTime, time_steps
from tonnage.throughput.work import token_work

_HEAD: Final = """\
## Times of requests on the H200

Measured by the engine core of the same starts, without the HTTP server: the time from token to
token of a batch, and the time to the first token of prompts that arrive together on an idle
replica. Milliseconds, estimated / measured.

| start | what | estimated / measured | off by |
| --- | --- | --- | --- |
{rows}

| figure | median error of all | of the held-out start | asked |
| --- | --- | --- | --- |
{figures}
"""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A measured time and its estimate, in seconds."""

    start: HardwareStart
    what: str
    first_token: bool
    estimated: float
    measured: float

    @property
    def error(self) -> Error:
        """How far the estimate is off."""
        return Error(f"{self.start.case.id} {self.what}",
                     relative_error(self.estimated, self.measured))  # fmt: skip


@cache
def timed_steps() -> tuple[TimedStep, ...]:
    """All measured times with their estimates."""
    return tuple(step for start in hardware_starts() for step in _steps(start))


def median_error(first_token: bool, held_out: bool) -> float | None:
    """The median error of times to a first token or of times per token."""
    steps = [step for step in timed_steps() if step.first_token == first_token]
    return median([step.error for step in steps if step.start.held_out or not held_out])


def render_speeds() -> str:
    """The section of docs/accuracy.md."""
    rows = [
        f"| {step.start.case.id} | {step.what} | {1e3 * step.estimated:.1f} / "
        f"{1e3 * step.measured:.1f} | {100 * (step.estimated / step.measured - 1):+.0f} % |"
        for step in timed_steps()
    ]
    figures = [
        f"| {what} | {_percent(median_error(first, False))} | {_percent(median_error(first, True))}"
        f" | ≤ {asked} % |"
        for what, first, asked in (("time per token", False, 20), ("time to first token", True, 25))
    ]
    return _HEAD.format(rows="\n".join(rows), figures="\n".join(figures))


def _steps(start: HardwareStart) -> Iterator[TimedStep]:
    if start.speeds is None:
        return
    for decode in start.speeds.decode:
        estimated = _step_time(start, decode.prompt, decode.steps).seconds(decode.batch, 0)
        yield TimedStep(start, _describe_batch(decode), False, estimated, decode.seconds_per_token)
    for prefill in start.speeds.prefill:
        seconds = _step_time(start, prefill.tokens, 1).seconds(0, prefill.prompts * prefill.tokens)
        yield TimedStep(start, _describe_prompts(prefill), True, seconds, prefill.seconds)


def _describe_batch(decode: Decode) -> str:
    return f"a token, {decode.batch} requests of {decode.prompt} tokens"


def _describe_prompts(prefill: Prefill) -> str:
    prompts = "a prompt" if prefill.prompts == 1 else f"the last of {prefill.prompts} prompts"
    return f"first token of {prompts} of {prefill.tokens} tokens"


def _step_time(start: HardwareStart, input_tokens: int, output_tokens: int) -> StepTime:
    catalog = load_catalog()
    question = make_question(start.case, catalog).question
    shape, options, device = question.checkpoint.shape, question.options, question.accelerator
    verdict = answer(question, catalog)
    assert isinstance(verdict, MemoryFit), f"{start.case.id} ran"
    release = catalog.release(options.vllm_version)
    loaded = loaded_quantization(shape, options, device.arch, release)
    data = load_throughput_data()
    speed = device_speed(
        device, shape.architecture, loaded, question.parallelism, release, 1.0, data
    )
    assert speed is not None, "the catalogue has the figures of an H200"
    demand = Demand(concurrency=1, input_tokens=input_tokens, output_tokens=output_tokens)
    return time_steps(
        token_work(shape, loaded), verdict.account, question.parallelism, speed, demand
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
