"""`tonnage fit --batch` and `--tp-batch`: one answer a line, in the order of the cases.

A line that cannot be used is answered with its error and does not stop the others.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.fit_asking import ask
from tonnage.cli.fit_case import MAX_LINE_BYTES, Case, case_id, parse_case
from tonnage.cli.fit_judging import judge_for_vllm
from tonnage.cli.fit_prediction import as_prediction
from tonnage.fit.corrections import UNCORRECTED, Corrections
from tonnage.fit.parallelism import check_parallelism

STDIN: Final = "-"

Answer = Callable[[Case, Catalog], dict[str, Any]]


def run_batch(path: str, answer: Answer, catalog: Catalog) -> int:
    """Answer every line. One that cannot be used has its error for an answer, so the batch is done
    all the same; how many there are is told on standard error."""
    unusable = 0
    with _lines(path) as lines:
        for number, line in lines:
            answered = _answer_line(number, line, answer, catalog)
            sys.stdout.write(json.dumps(answered) + "\n")
            unusable += "error" in answered
    if unusable:
        sys.stderr.write(f"tonnage fit: {unusable} lines could not be used: see their error\n")
    return ExitCode.DONE


def predict_fit(
    case: Case, catalog: Catalog, corrections: Corrections = UNCORRECTED
) -> dict[str, Any]:
    """What vLLM would do with the memory of one GPU. Raises InputError."""
    asked = ask(case, catalog)
    asked = replace(asked, question=replace(asked.question, corrections=corrections))
    return as_prediction(case.id, asked, judge_for_vllm(asked.question, catalog))


def predict_legality(case: Case, catalog: Catalog) -> dict[str, Any]:
    """Whether vLLM accepts the layout, whatever the memory. Raises InputError."""
    question = ask(case, catalog).question
    release = catalog.release(question.options.vllm_version)
    illegal = check_parallelism(
        question.checkpoint.shape, question.parallelism, question.options, release
    )
    reason = f"{illegal.message} (rule {illegal.rule})" if illegal else "vLLM accepts this layout"
    return {"id": case.id, "legal": illegal is None, "reason": reason}


def _answer_line(number: int, line: bytes, answer: Answer, catalog: Catalog) -> dict[str, Any]:
    try:
        return answer(parse_case(line), catalog)
    except InputError as error:
        return {"id": case_id(line), "error": f"line {number}: {error}"}


@contextmanager
def _lines(path: str) -> Iterator[Iterator[tuple[int, bytes]]]:
    """The lines that are not blank, with their numbers."""
    if path == STDIN:
        yield _numbered(sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            yield _numbered(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None


def _numbered(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 2):
        number += 1
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)  # the rest of a line that is refused anyway
            if not rest or rest.endswith(b"\n"):
                break
        if line.strip():
            yield number, line
