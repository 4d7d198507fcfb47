"""Answers the question of the flags, for one accelerator or for several side by side."""

import argparse
import json
import sys
from collections.abc import Sequence

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.fit.choice import report_choices
from tonnage.cli.fit.comparison import show_comparison
from tonnage.cli.fit.engine import AUTO
from tonnage.cli.fit.flags import read_flags
from tonnage.cli.fit.judgement import Outcome
from tonnage.cli.fit.report import FitReport, make_report, report_data
from tonnage.cli.fit.view import show_report
from tonnage.cli.output import LINES, TABLE, make_console, write_data
from tonnage.fit.sglang.model import NotCalculatedError


def answer_flags(options: argparse.Namespace) -> int:
    """Print the answer; exit with 3 if the model fits on none of the accelerators.

    Raises InputError for flags that cannot be used, and for what is not calculated for SGLang.
    """
    catalog = load_catalog()
    if options.engine == AUTO:
        reports = report_choices(options, catalog)
    else:
        reports = _report_one_engine(options, catalog)
    _show(options.output or TABLE, reports)
    fits = any(report.outcome is Outcome.FITS for report in reports)
    return ExitCode.DONE if fits else ExitCode.ANSWER_IS_NO


def _report_one_engine(options: argparse.Namespace, catalog: Catalog) -> Sequence[FitReport]:
    try:
        return [make_report(flags, catalog) for flags in read_flags(options, catalog)]
    except NotCalculatedError as error:
        raise InputError(f"--engine sglang: {error}") from None


def _show(form: str, reports: Sequence[FitReport]) -> None:
    (first, *others) = reports
    if form == LINES:
        for report in reports:
            sys.stdout.write(json.dumps(report_data(report)) + "\n")
    elif form != TABLE:
        items = [report_data(report) for report in reports]
        write_data(form, {"items": items} if others else items[0])
    elif others:
        show_comparison(make_console(), reports)
    else:
        show_report(make_console(), first)
