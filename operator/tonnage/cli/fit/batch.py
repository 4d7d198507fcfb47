"""`tonnage fit --batch` and `--tp-batch`: write one answer per line, in the order of the cases.

The answer to an invalid line is its error; the other lines are still answered.
"""

import argparse
import json
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.fit.case import MAX_LINE_BYTES, FitCase, case_id, parse_case
from tonnage.cli.fit.judgement import judge_for_vllm
from tonnage.cli.fit.prediction import as_data, data_without_device
from tonnage.cli.fit.question import make_question
from tonnage.cli.output import LINES
from tonnage.cli.sources.corrections import read_corrections
from tonnage.cli.sources.input_files import STDIN
from tonnage.fit.calibration.corrections import UNCORRECTED, Corrections
from tonnage.fit.legality.parallelism import check_parallelism
from tonnage.fit.messages import format_count

_BATCH_FLAGS: Final = ("--batch", "--tp-batch", "--output", "--corrections")
"""The lines of a batch hold all other settings."""

Answer = Callable[[FitCase, Catalog], dict[str, Any]]


def answer_batch(options: argparse.Namespace) -> int:
    """Answer every line of the batch. Raises InputError for flags that a batch does not have."""
    if options.output not in (None, LINES):
        raise InputError(f"-o {options.output}: a batch is answered as {LINES}")
    refused = [flag for flag in _typed_flags(options.typed) if not _is_of_batches(flag)]
    if refused:
        raise InputError(f"{', '.join(refused)}: each line of a batch has its own; leave this out")
    catalog = load_catalog()
    if options.batch is not None:
        corrections = read_corrections(options.corrections, catalog).most_careful()
        return run_batch(options.batch, partial(predict_fit, corrections=corrections), catalog)
    if options.corrections is not None:
        raise InputError("--corrections: what vLLM accepts does not depend on memory")
    return run_batch(options.tp_batch, predict_legality, catalog)


def _typed_flags(arguments: Sequence[str]) -> Iterator[str]:
    """The flags among the arguments, as the user typed them."""
    return (
        argument.partition("=")[0]
        for argument in arguments
        if argument.startswith("-") and argument != STDIN
    )


def _is_of_batches(flag: str) -> bool:
    """Whether a batch has the flag; argparse accepts the start of a long one."""
    if not flag.startswith("--"):
        return flag.startswith("-o")
    return any(known.startswith(flag) for known in _BATCH_FLAGS)


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
        sys.stderr.write(
            f"tonnage fit: {format_count(invalid, 'line')} could not be used: see `error`\n"
        )
    return ExitCode.DONE


def predict_fit(
    case: FitCase, catalog: Catalog, corrections: Corrections = UNCORRECTED
) -> dict[str, Any]:
    """Predict the memory of one GPU and the verdict of vLLM. Raises InputError."""
    made = make_question(case, catalog)
    question = replace(made.question, corrections=corrections)
    judged = judge_for_vllm(question, catalog)
    data = as_data(judged) if made.device_known else data_without_device(judged)
    return {"id": case.id, **data, "notes": [*made.notes, *judged.notes]}


def predict_legality(case: FitCase, catalog: Catalog) -> dict[str, Any]:
    """Predict whether vLLM accepts the layout, whatever the memory. Raises InputError."""
    question = make_question(case, catalog).question
    release = catalog.release(question.options.release)
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
    with ExitStack() as opened:
        try:
            file = opened.enter_context(Path(path).open("rb"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", error)
            raise InputError(f"{path} cannot be read: {reason}") from None
        yield _number_lines(file)


def _number_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 2):
        number += 1
        line = line.removeprefix(BOM_UTF8) if number == 1 else line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)  # skip the rest of a line that is too long
            if not rest or rest.endswith(b"\n"):
                break
        if line.strip():
            yield number, line
