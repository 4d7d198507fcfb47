"""The command line: finds the subcommand, and turns a user's mistake into one line on stderr.

Only the module of the subcommand in use is imported: `tonnage fit` in a CI job must not wait for
the clients and servers of the operator to be loaded.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from tonnage import __version__
from tonnage.api.text import harmless
from tonnage.cli.errors import ExitCode, InputError

_PLUGIN: Final = "kubectl-tonnage"

SUBCOMMANDS: Final = {
    "run": "run the operator",
    "plan": "show what the operator would do for InferenceDeployments in files",
    "fit": "tell whether a model fits on accelerators, from its config.json",
    "explain": "tell the story of one InferenceDeployment, from its model to what happens next",
    "approve": "approve the plan of an InferenceDeployment that waits for that",
    "restart": "start all replicas of an InferenceDeployment anew",
    "unpin": "carry out the plans of an InferenceDeployment without approval again",
    "pools": "show the accelerator pools of a cluster, and what is free on their nodes",
    "inspect": "print a Job that gathers the facts of a model on a volume",
    "crds": "print the CustomResourceDefinitions",
    "reference": "print the reference of the API",
    "rules": "print the compatibility rules",
    "version": "print the version",
}
"""Name of each subcommand, which is also its module's, and what it does."""


class Subcommand(Protocol):
    """What a module of this package offers to be a subcommand."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code (see `ExitCode`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(arguments[0] if arguments else None)
    options = parser.parse_args(arguments)
    subcommand = load_subcommand(options.subcommand)
    try:
        return subcommand.run(options)
    except InputError as error:
        sys.stderr.write(f"{_program()} {options.subcommand}: {harmless(str(error))}\n")
        return ExitCode.BAD_INPUT
    except BrokenPipeError:
        # The reader (`head`, a pager that was quit) has seen enough. What is still buffered has
        # nowhere to go, and must not raise the same error again when the interpreter ends.
        sys.stdout = None
        return ExitCode.DONE
    except KeyboardInterrupt:
        return 128 + 2  # as a shell reports a program that SIGINT ended


def build_parser(wanted: str | None) -> argparse.ArgumentParser:
    """Return the parser of all subcommands, with the options of the wanted one."""
    parser = argparse.ArgumentParser(
        prog=_program(),
        description="Places LLM inference on heterogeneous GPU fleets and says why.",
        epilog="exit codes: 0 done, 2 unusable input, 3 the answer is no (it fits nowhere)",
    )
    parser.add_argument("--version", action="version", version=f"tonnage {__version__}")
    choices = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name, purpose in SUBCOMMANDS.items():
        child = choices.add_parser(name, help=purpose, description=f"{purpose.capitalize()}.")
        if name == wanted:
            load_subcommand(name).add_arguments(child)
    return parser


def _program() -> str:
    """The name that the user called the program by: kubectl runs its plugins as kubectl-NAME."""
    return "kubectl tonnage" if Path(sys.argv[0]).stem == _PLUGIN else "tonnage"


def load_subcommand(name: str) -> Subcommand:
    """Import the module of a subcommand."""
    return cast("Subcommand", importlib.import_module(f"tonnage.cli.{name}"))
