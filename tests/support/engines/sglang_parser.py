"""A parser with the arguments that SGLang's own one has, for tests without SGLang.

argparse reads by the recorded table (catalog/data/sglang_arguments.yaml), so names, abbreviations,
numbers of values, types and choices are judged as in SGLang.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from tonnage.catalog.sglang_arguments import Argument, load_sglang_arguments

READERS = {
    "str": str,
    "int": int,
    "float": float,
    "loads": json.loads,
    "json_list_type": json.loads,
    "human_readable_int": int,
    "nullable_str": str,
    "parse_cuda_graph_backend_arg": str,
    "parse_cuda_graph_config_arg": str,
}
"""Those that SGLang wrote take more than these do: 16k for an integer, or an empty text."""


class RefusedError(Exception):
    """The parser refuses a list; the message says why."""


class Parser(argparse.ArgumentParser):
    """Raises in place of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


def sglang_parser() -> Parser:
    """The parser, as SGLang itself puts it together."""
    parser = Parser(prog="sglang serve")
    for name, argument in load_sglang_arguments().arguments.items():
        _add(parser, name, argument)
    return parser


def read_by_sglang(arguments: Sequence[str]) -> dict[str, Any]:
    """What the parser reads a list as, by first names. Raises RefusedError."""
    return vars(sglang_parser().parse_args(list(arguments)))


def _add(parser: Parser, name: str, argument: Argument) -> None:
    names = [f"--{each}" for each in (name, *argument.also)]
    options: dict[str, Any] = {"dest": name}
    if argument.nargs == "0":
        parser.add_argument(*names, action="store_true", **options)
        return
    if argument.choices:
        read = READERS[argument.reader]
        options["choices"] = [read(each) for each in argument.choices]
    parser.add_argument(
        *names,
        nargs=argument.nargs,
        type=READERS[argument.reader],
        required=argument.required,
        **options,
    )
