"""Every record put to `tonnage fit` as a case of a batch, and its answer."""

from collections.abc import Callable
from functools import cache
from typing import Any

from accuracy.records import (
    Build,
    Layout,
    StageBuild,
    StartUp,
    builds,
    held_out,
    layouts,
    stage_builds,
    startups,
)
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.cli.errors import InputError
from tonnage.cli.fit.batch import predict_fit, predict_legality
from tonnage.cli.fit.case import FitCase

Answer = dict[str, Any]


@cache
def answered_startups() -> tuple[tuple[StartUp, Answer], ...]:
    """Start-ups with what `tonnage fit` predicts for them."""
    return tuple((record, ask_fit(record.case)) for record in startups())


@cache
def answered_held_out() -> tuple[tuple[StartUp, Answer], ...]:
    """Held-out start-ups with what `tonnage fit` predicts for them."""
    return tuple((record, ask_fit(record.case)) for record in held_out())


@cache
def answered_builds() -> tuple[tuple[Build, Answer], ...]:
    """Builds with what `tonnage fit` predicts for them."""
    return tuple((record, ask_fit(record.case())) for record in builds())


@cache
def answered_stage_builds() -> tuple[tuple[StageBuild, Answer], ...]:
    """Builds by stage with what `tonnage fit` predicts for them."""
    return tuple((record, ask_fit(record.case())) for record in stage_builds())


@cache
def answered_layouts() -> tuple[tuple[Layout, Answer], ...]:
    """Layouts with whether `tonnage fit` calls them legal."""
    return tuple((record, _ask(predict_legality, record.case)) for record in layouts())


def figure(answer: Answer, name: str) -> float | None:
    """A figure for one GPU, in the unit that its name ends in; None when it is missing."""
    value = (answer.get("perGPU") or {}).get(name, answer.get(name))
    return None if value is None else float(value)


def loaded_gib(answer: Answer) -> float | None:
    """What vLLM prints as loaded: the weights with the buffers for LoRA adapters."""
    weights = figure(answer, "weightsGiB")
    return None if weights is None else weights + (figure(answer, "loraGiB") or 0)


def ask_fit(case: FitCase) -> Answer:
    """What `tonnage fit` answers to a case."""
    return _ask(predict_fit, case)


def _ask(predict: Callable[[FitCase, Catalog], Answer], case: FitCase) -> Answer:
    try:
        return predict(case, load_catalog())
    except InputError as error:
        return {"id": case.id, "error": str(error)}
