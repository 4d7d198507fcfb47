"""`tonnage fit --batch` and `--tp-batch`: write one answer per line, in the order of the cases.

The answer to an invalid line is its error; the other lines are still answered.
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
from tonnage.cli.fit.case import MAX_LINE_BYTES, FitCase, case_id, parse_case
from tonnage.cli.fit.judgement import judge_for_vllm
from tonnage.cli.fit.prediction import as_prediction
from tonnage.cli.fit.question import make_question
from tonnage.fit.calibration.corrections import UNCORRECTED, Corrections
from tonnage.fit.legality.parallelism import check_parallelism

STDIN: Final = "-"

Answer = Callable[[FitCase, Catalog], dict[str, Any]]


def run_batch(path: str, answer: Answer, catalog: Catalog) -> int:
    """Answer every line; write the number of invalid lines to standard error. An invalid line does
    not change the exit code, because its error is its answer."""
    invalid = 0
    with _open_lines(path) as lines:
        for number, line in lines:
            data = _answer_line(number, line, answer, catalog)
            sys.stdout.write(json.dumps(data) + "\n")
            invalid += "error" in data
    if invalid:
        sys.stderr.write(f"tonnage fit: {invalid} lines could not be used: see their error\n")
    return ExitCode.DONE


def predict_fit(
    case: FitCase, catalog: Catalog, corrections: Corrections = UNCORRECTED
) -> dict[str, Any]:
    """Predict the memory of one GPU and the verdict of vLLM. Raises InputError."""
    made = make_question(case, catalog)
    question = replace(made.question, corrections=corrections)
    judged = judge_for_vllm(question, catalog)
    return as_prediction(case.id, replace(made, question=question), judged)


def predict_legality(case: FitCase, catalog: Catalog) -> dict[str, Any]:
    """Predict whether vLLM accepts the layout, whatever the memory. Raises InputError."""
    question = make_question(case, catalog).question
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
def _open_lines(path: str) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Open the batch; yield its non-blank lines with their numbers."""
    if path == STDIN:
        yield _number_lines(sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            yield _number_lines(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None


def _number_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 2):
        number += 1
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)  # skip the rest of a line that is too long
            if not rest or rest.endswith(b"\n"):
                break
        if line.strip():
            yield number, line
