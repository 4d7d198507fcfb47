"""`tonnage fit --engine auto`: judges every engine, and takes one for each accelerator by the rules
of `spec.engine.type: Auto`."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.cli.fit.engine import Engine, EngineChoice
from tonnage.cli.fit.flags import Flags, read_flags_of_engines
from tonnage.cli.fit.judgement import Outcome
from tonnage.cli.fit.prediction import format_reason
from tonnage.cli.fit.report import FitReport, make_report
from tonnage.fit.legality.engine_choice import (
    Contest,
    EngineAnswer,
    choose_engine,
    explain_missing_class,
    join_reasons,
)
from tonnage.fit.sglang.model import NotCalculatedError

_NOT_CALCULATED: Final = "rule NotCalculated"

_NEAREST: Final = (Outcome.DOES_NOT_FIT, Outcome.REFUSED, Outcome.FITS)
"""Outcomes of engines of which none is taken: the first says most about what to change, and the
last is of an engine that no rule names."""


def report_choices(options: argparse.Namespace, catalog: Catalog) -> Sequence[FitReport]:
    """The report of the engine that is taken, for each accelerator that the flags name. Raises
    InputError."""
    by_engine = read_flags_of_engines(options, catalog)
    count = max(len(flags) for flags in by_engine.values() if not isinstance(flags, str))
    return [
        _take(
            {
                engine: flags if isinstance(flags, str) else _judge(engine, flags[index], catalog)
                for engine, flags in by_engine.items()
            },
            catalog,
        )
        for index in range(count)
    ]


def _judge(engine: Engine, flags: Flags, catalog: Catalog) -> FitReport | str:
    """The report of one engine, or why it is not judged."""
    question = flags.question
    release = question.memory.release(question.options, catalog)
    missing = explain_missing_class(engine, release, question.checkpoint.shape)
    if missing is not None:
        return missing
    try:
        return make_report(flags, catalog)
    except NotCalculatedError as error:
        return f"{error} ({_NOT_CALCULATED})"


def _take(judged: Mapping[Engine, FitReport | str], catalog: Catalog) -> FitReport:
    answers = tuple(_answer(engine, report) for engine, report in judged.items())
    reports = {engine: report for engine, report in judged.items() if not isinstance(report, str)}
    fitting = {
        engine: report.judged.question
        for engine, report in reports.items()
        if report.outcome is Outcome.FITS
    }
    chosen = None
    if fitting:
        question = next(iter(fitting.values()))
        contest = Contest(
            question.checkpoint.shape,
            question.accelerator,
            question.options,
            {name: one.memory.release(one.options, catalog) for name, one in fitting.items()},
            answers,
        )
        chosen = choose_engine(contest, Engine.VLLM, catalog)
    if chosen is None:
        nearest = min(reports.values(), key=lambda one: _NEAREST.index(one.outcome))
        return replace(
            nearest, choice=EngineChoice(None, join_reasons(answers, unproven=True), answers)
        )
    taken, why = Engine(chosen[0]), chosen[1]
    return replace(reports[taken], choice=EngineChoice(taken, why, answers))


def _answer(engine: Engine, report: FitReport | str) -> EngineAnswer:
    if isinstance(report, str):
        return EngineAnswer(engine, False, report)
    judged = report.judged
    rule = "" if judged.rule is None else f" (rule {judged.rule})"
    fits = judged.outcome is Outcome.FITS
    return EngineAnswer(engine, fits, format_reason(judged) + rule, judged.incompatible)
