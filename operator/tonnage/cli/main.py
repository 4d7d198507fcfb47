"""The command line: runs a subcommand, and reports an input error as one line on stderr.

It imports only the module of the subcommand in use: `tonnage fit` in a CI job must not wait for the
import of the operator's clients and servers.
"""

import argparse
import errno
import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from tonnage import __version__
from tonnage.api.text import escape_controls
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.sources.input_files import refuse_second_stdin

_PLUGIN: Final = "kubectl-tonnage"

# pydantic looks for plugins in the metadata of every installed package, which takes a tenth of the
# time of a short command. Tonnage uses none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# Imports and the catalogue make some 100,000 objects and no garbage, and looking for some takes a
# tenth of the time of a short command. `run` has thresholds of its own.
gc.set_threshold(50_000)

SUBCOMMANDS: Final = {
    "run": "run the operator",
    "plan": "show what the operator would do for InferenceDeployments in files",
    "fit": "check whether a model fits on accelerators, from its config.json",
    "accelerators": "list the accelerators of the catalogue, and how to name them",
    "explain": "explain one InferenceDeployment, from its model to the next steps",
    "approve": "approve the pending plan of an InferenceDeployment",
    "restart": "restart all replicas of an InferenceDeployment",
    "upgrade": "run an InferenceDeployment with what the operator would choose now",
    "unpin": "carry out the plans of an InferenceDeployment without approval again",
    "pools": "show the accelerator pools of a cluster and the free GPUs of their nodes",
    "inspect": "show the facts of a model, or print a Job that reads them from a volume",
    "crds": "print the CustomResourceDefinitions",
    "reference": "print the reference of the API",
    "rules": "print the compatibility rules",
    "version": "print the version",
}
"""The purpose of each subcommand by its name, which is also its module's in `cli.commands`."""


class Subcommand(Protocol):
    """The interface of a subcommand's module."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Runs with the parsed arguments, of which `typed` is the text as the user typed it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code (see `ExitCode`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except InputError as error:
        return _refuse(arguments[0], str(error))
    except BrokenPipeError:
        # The reader (`head`, a pager) has closed the pipe. Buffered output must not raise the same
        # error again when the interpreter exits.
        sys.stdout = None
        return ExitCode.DONE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stdout = None
        return _refuse(arguments[0], f"the output cannot be written: {error.strerror}")
    except KeyboardInterrupt:
        return 128 + 2  # the exit code of a shell for a program ended by SIGINT


def _run(arguments: Sequence[str]) -> int:
    options = build_parser(arguments[0] if arguments else None).parse_args(arguments)
    options.typed = tuple(arguments[1:])
    refuse_second_stdin(options)
    code = load_subcommand(options.subcommand).run(options)
    sys.stdout.flush()
    return code


def _refuse(subcommand: str, message: str) -> int:
    sys.stderr.write(f"{_program()} {subcommand}: {escape_controls(message)}\n")
    return ExitCode.BAD_INPUT


def build_parser(subcommand: str | None) -> argparse.ArgumentParser:
    """Return the parser of all subcommands, with the options of the given one only."""
    parser = argparse.ArgumentParser(
        prog=_program(),
        description="Places LLM inference on the GPUs of a cluster, and shows why.",
        epilog="exit codes: 0 done, 1 plan --diff found a change, 2 unusable input, 3 the answer "
        "is no (it fits nowhere)",
    )
    parser.add_argument("--version", action="version", version=f"tonnage {__version__}")
    choices = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name, purpose in SUBCOMMANDS.items():
        child = choices.add_parser(name, help=purpose, description=_format_sentence(purpose))
        if name == subcommand:
            load_subcommand(name).add_arguments(child)
    return parser


def _format_sentence(purpose: str) -> str:
    return f"{purpose[0].upper()}{purpose[1:]}."


def _program() -> str:
    """The name that the user typed: kubectl runs its plugins as kubectl-NAME."""
    return "kubectl tonnage" if Path(sys.argv[0]).stem == _PLUGIN else "tonnage"


def load_subcommand(name: str) -> Subcommand:
    """Import the module of a subcommand."""
    return cast("Subcommand", importlib.import_module(f"tonnage.cli.commands.{name}"))
