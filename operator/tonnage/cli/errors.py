"""How a subcommand ends: exit codes, and the one exception for what a user can put right."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script that calls `tonnage` may rely on. A defect of ours ends with 1 too."""

    DONE = 0
    """The question was answered, the work was done."""
    DIFFERENT = 1
    """`--diff` found something that would change, as kubectl diff and diff say it."""
    BAD_INPUT = 2
    """The command line or a file cannot be used; argparse ends with the same code."""
    ANSWER_IS_NO = 3
    """Everything was understood, and the answer is no: for example a model fits nowhere."""


class InputError(Exception):
    """Something a user can put right: the message names the thing, its value and what to do."""
