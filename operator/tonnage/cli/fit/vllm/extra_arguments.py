"""Parses extra arguments and environment variables of a server, as found in logs and commands.

It reads the arguments that the memory calculation covers, and notes those that change memory but
that the calculation does not cover.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, NoReturn

from tonnage.catalog.vllm.flags import COUNTED, engine_flags
from tonnage.cli.fit.vllm.flags import add_engine_arguments

_GRAPHS_IN_BUDGET: Final = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"

_MIN_PREFIX: Final = 5
"""Shortest prefix of a flag that counts as an abbreviation: argparse accepts unique prefixes."""


class BadArgumentError(ValueError):
    """An invalid flag; the message names the flag, its value and the expected form."""


@dataclass(frozen=True, slots=True)
class ExtraArguments:
    """The parsed arguments of `vllm serve`.

    `settings` are by the names of the parser, `stated` holds every argument with its value and
    every NAME=value as given, `notes` describe the ignored ones.
    """

    settings: Mapping[str, Any]
    stated: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def parse_extra_arguments(arguments: Sequence[str]) -> ExtraArguments:
    """Parse arguments and environment variables of a server. Raises BadArgumentError."""
    if not arguments:
        return ExtraArguments({})
    normalized = [_normalize_flag(argument) for argument in arguments]
    parsed, others = _make_parser().parse_known_args(normalized)
    settings = vars(parsed)
    if f"{_GRAPHS_IN_BUDGET}=0" in normalized:
        settings["graphs_in_budget"] = False
        others.remove(f"{_GRAPHS_IN_BUDGET}=0")
    notes = [*_note_ignored(others), *_note_uncounted_values(normalized, settings)]
    return ExtraArguments(settings, frozenset(_join_values(normalized)), tuple(notes))


def _join_values(arguments: Sequence[str]) -> Iterator[str]:
    """Yield each argument, and those with a separate value also as flag=value."""
    for argument, following in pairwise([*arguments, ""]):
        yield argument
        if argument.startswith("-") and following and "=" not in argument:
            yield f"{argument}={following}"


def _note_ignored(others: Sequence[str]) -> Iterator[str]:
    """Note the ignored arguments on which memory may depend."""
    table = engine_flags()
    for argument in others:
        name = argument.partition("=")[0][:80]
        known = table.name_of(argument) if argument.startswith("-") else None
        effect = table.flags[known].memory if known else table.variables.get(name)
        if effect not in (None, COUNTED):
            yield f"{name} was ignored: {effect} cannot be calculated"
        elif known not in (name, None) or _resembles_a_counted_flag(name):
            yield f"{name} is not known and was ignored"


def _note_uncounted_values(arguments: Sequence[str], settings: Mapping[str, Any]) -> Iterator[str]:
    """Note the flags of the calculation with a value that it does not follow."""
    for given in engine_flags().read(arguments):
        option, effect = given.flag.option, given.flag.otherwise
        if effect is not None and option is not None and not settings.get(option):
            yield f"{given.name} was ignored: {effect} cannot be calculated"


def _resembles_a_counted_flag(name: str) -> bool:
    """Whether the name starts like a flag of the calculation, or is a prefix of one."""
    if not name.startswith("--") or len(name) < _MIN_PREFIX or name in engine_flags().flags:
        return False
    return any(name.startswith(stem) or stem.startswith(name) for stem in _counted_stems())


@cache
def _counted_stems() -> frozenset[str]:
    """The first two words of each flag of the calculation, as in `--max-num`."""
    flags = engine_flags().flags.items()
    counted = [name for name, flag in flags if flag.memory == COUNTED]
    return frozenset("-".join(name.split("-")[:4]) for name in counted)


@cache
def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_engine_arguments(parser)
    return parser


def _normalize_flag(argument: str) -> str:
    """The flag with dashes: vLLM accepts underscores for them (FlexibleArgumentParser)."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


class _Parser(argparse.ArgumentParser):
    """Raises an error instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise BadArgumentError(message)
