"""Exit codes of the subcommands, and the exception for errors that the user can fix."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes that scripts may rely on. A bug of `tonnage` also ends with 1."""

    DONE = 0
    """The command succeeded."""
    DIFFERENT = 1
    """`--diff` found a difference; kubectl diff and diff use the same code."""
    BAD_INPUT = 2
    """The command line or a file is invalid; argparse uses the same code."""
    ANSWER_IS_NO = 3
    """The input is valid and the answer is no: for example, a model fits nowhere."""


class InputError(Exception):
    """An error that the user can fix: the message names the subject, its value and the fix."""
