"""`tonnage fit`: checks from files, without a cluster or GPU, whether a model fits on devices."""

import argparse
import json
import sys
from functools import partial
from typing import Final

from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Vendor
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.fit.batch import predict_fit, predict_legality, run_batch
from tonnage.cli.fit.flags import read_flags
from tonnage.cli.fit.judgement import Outcome
from tonnage.cli.fit.report import make_report, report_data
from tonnage.cli.fit.view import show_report
from tonnage.cli.fit.vllm_flags import add_engine_arguments
from tonnage.cli.output import TABLE, make_console, write_data
from tonnage.cli.sources.corrections import add_corrections_argument, read_corrections
from tonnage.fit.flag_values import size

_LINES: Final = "jsonl"

_EPILOG: Final = """\
examples:
  every tensor-parallel degree of a node, and the smallest that fits:
    tonnage fit --config config.json --accelerator h100-sxm-80gb --max-model-len 32k
  one layout that holds 50 requests of 2000 tokens, for a program:
    tonnage fit --config config.json --accelerator mi300x -tp 2 --max-model-len 32k \\
        --concurrency 50 --input-tokens 1500 --output-tokens 500 -o json
  an FP8 model on a card that the catalogue does not have, in another release:
    tonnage fit --config config.json --vendor nvidia --device-memory 44.4GiB --quantization fp8 \\
        --vllm-version 0.19.0 --kv-cache-dtype fp8
  many cases, one JSON object a line:
    tonnage fit --batch cases.jsonl -o jsonl > predictions.jsonl

exit codes of one question: 0 it fits, 2 unusable input, 3 it does not fit or is refused
exit codes of a batch: 0 every line has its answer, which is an error for an invalid line (standard
error says how many), 2 the batch cannot be read

docs/fit.md explains the answer and describes cases and predictions."""

_BATCH_OPTIONS: Final = frozenset({"subcommand", "batch", "tp_batch", "output", "corrections"})
"""Options allowed with a batch, whose lines hold all other settings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of one question, and of a file with many."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", metavar="FILE", help="config.json of the model; - is stdin")
    source.add_argument("--batch", metavar="FILE", help="cases, one JSON object a line; - is stdin")
    source.add_argument(
        "--tp-batch", metavar="FILE", help="layouts in the same form: does vLLM accept them?"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=(TABLE, "json", "yaml", _LINES),
        help=f"form of the answer (default: {TABLE}; {_LINES} for a batch)",
    )
    _add_model_arguments(parser)
    _add_device_arguments(parser)
    _add_workload_arguments(parser)
    add_engine_arguments(parser)
    add_corrections_argument(parser)
    parser.add_argument(
        "--extra-args",
        default="",
        metavar="TEXT",
        help="other arguments and environment variables of the server, in one text, as in "
        "--extra-args 'VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 --enable-eplb'",
    )


def run(options: argparse.Namespace) -> int:
    """Answer one question, or every line of a batch."""
    if options.config is not None:
        return _answer_one(options)
    if options.output not in (None, _LINES):
        raise InputError(f"-o {options.output}: a batch is answered as {_LINES}")
    unused = [
        name
        for name, value in vars(options).items()
        if value not in (None, "", []) and name not in _BATCH_OPTIONS
    ]
    if unused:
        raise InputError(f"a batch sets {', '.join(unused)} in its lines: leave the flags out")
    catalog = load_catalog()
    if options.batch is not None:
        corrections = read_corrections(options.corrections, catalog).most_careful()
        return run_batch(options.batch, partial(predict_fit, corrections=corrections), catalog)
    if options.corrections is not None:
        raise InputError("--corrections: what vLLM accepts does not depend on memory")
    return run_batch(options.tp_batch, predict_legality, catalog)


def _answer_one(options: argparse.Namespace) -> int:
    catalog = load_catalog()
    report = make_report(read_flags(options, catalog), catalog)
    form = options.output or TABLE
    if form == TABLE:
        show_report(make_console(), report)
    elif form == _LINES:
        sys.stdout.write(json.dumps(report_data(report)) + "\n")
    else:
        write_data(form, report_data(report))
    return ExitCode.DONE if report.outcome is Outcome.FITS else ExitCode.ANSWER_IS_NO


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    weights = group.add_mutually_exclusive_group()
    weights.add_argument(
        "--weights-bytes", type=size, metavar="N", help="size of its files: 141107412992, 132GiB"
    )
    weights.add_argument(
        "--safetensors-index", metavar="FILE", help="its model.safetensors.index.json"
    )


def _add_device_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("device")
    group.add_argument("--accelerator", metavar="ID", help="its id in the catalogue, as mi300x")
    group.add_argument(
        "--vendor",
        type=Vendor,
        choices=tuple(Vendor),
        help="of a card that is not in the catalogue; needs --device-memory",
    )
    group.add_argument(
        "--device-memory",
        type=size,
        metavar="N",
        help="memory that torch sees, as 79.2GiB (default: the catalogue's)",
    )
    group.add_argument(
        "--gpus-per-node", type=size, metavar="N", help="default: the catalogue's, else 8"
    )
    group.add_argument(
        "--vllm-version", metavar="V", help="release, image or day (default: the newest known)"
    )
    group.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="compatibility rule to override; can be given several times",
    )


def _add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "workload",
        "what the KV cache has to hold at once, in addition to one request of --max-model-len",
    )
    group.add_argument("--concurrency", type=size, metavar="N", help="requests at a time")
    group.add_argument("--input-tokens", type=size, metavar="N", help="prompt of a typical request")
    group.add_argument(
        "--output-tokens", type=size, metavar="N", help="answer to a typical request"
    )
