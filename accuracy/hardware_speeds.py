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
from tonnage.fit.questions.question import FitQuestion, answer
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

| figure | median error of all | of held-out starts | of those without experts | asked |
| --- | --- | --- | --- | --- |
{figures}

The figures of the estimate are fitted to published records and to the starts that are not held out.
Batches of gpt-oss-120b say little about a real one, since their tokens shared experts: 16 requests
took 0.8 ms longer than one, and to read the experts of 16 tokens that choose independently takes
4.7 ms at the peak bandwidth. vLLM does not fill packed 4-bit weights of random models.
"""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A measured time and its estimate, in seconds."""

    start: HardwareStart
    what: str
    first_token: bool
    has_experts: bool
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
    return tuple(step for start in hardware_starts() for step in steps_of(start))


def median_error(first_token: bool, held_out: bool, experts: bool = True) -> float | None:
    """The median error of times to a first token or of times per token.

    With `held_out` only of held-out starts, without `experts` only of models that have none.
    """
    steps = [
        step
        for step in timed_steps()
        if step.first_token == first_token
        and (step.start.held_out or not held_out)
        and (experts or not step.has_experts)
    ]
    return median([step.error for step in steps])


def render_speeds() -> str:
    """The section of docs/accuracy.md."""
    rows = [
        f"| {step.start.case.id} | {step.what} | {1e3 * step.estimated:.1f} / "
        f"{1e3 * step.measured:.1f} | {100 * (step.estimated / step.measured - 1):+.0f} % |"
        for step in timed_steps()
    ]
    figures = [
        f"| {what} | {_percent(median_error(first, False))} | {_percent(median_error(first, True))}"
        f" | {_percent(median_error(first, True, experts=False))} | ≤ {asked} % |"
        for what, first, asked in (("time per token", False, 20), ("time to first token", True, 25))
    ]
    return _HEAD.format(rows="\n".join(rows), figures="\n".join(figures))


def steps_of(start: HardwareStart) -> Iterator[TimedStep]:
    """The measured times of one start with their estimates."""
    if start.speeds is None:
        return
    has_experts = _fits()[str(start.case.id)][0].checkpoint.shape.experts is not None
    for decode in start.speeds.decode:
        estimated = _step_time(start, decode.prompt, decode.steps).seconds(decode.batch, 0)
        yield TimedStep(start, _describe_batch(decode), False, has_experts,
                        estimated, decode.seconds_per_token)  # fmt: skip
    for prefill in start.speeds.prefill:
        seconds = _step_time(start, prefill.tokens, 1).seconds(0, prefill.prompts * prefill.tokens)
        yield TimedStep(start, _describe_prompts(prefill), True, has_experts,
                        seconds, prefill.seconds)  # fmt: skip


def _describe_batch(decode: Decode) -> str:
    return f"a token, {decode.batch} requests of {decode.prompt} tokens"


def _describe_prompts(prefill: Prefill) -> str:
    prompts = "a prompt" if prefill.prompts == 1 else f"the last of {prefill.prompts} prompts"
    return f"first token of {prompts} of {prefill.tokens} tokens"


@cache
def _fits() -> dict[str, tuple[FitQuestion, MemoryFit]]:
    """What `tonnage fit` is asked and answers for each start with times, by its id."""
    catalog = load_catalog()
    fits = {}
    for start in hardware_starts():
        if start.speeds is not None:
            question = make_question(start.case, catalog).question
            verdict = answer(question, catalog)
            assert isinstance(verdict, MemoryFit), f"{start.case.id} ran"
            fits[str(start.case.id)] = question, verdict
    return fits


def _step_time(start: HardwareStart, input_tokens: int, output_tokens: int) -> StepTime:
    catalog = load_catalog()
    question, verdict = _fits()[str(start.case.id)]
    shape, options, device = question.checkpoint.shape, question.options, question.accelerator
    release = catalog.release(options.release)
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
