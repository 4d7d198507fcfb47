"""`tonnage` as a person types it: arguments in, exit code and both streams out."""

from collections.abc import Callable

import pytest

from tonnage.cli.main import main

Run = Callable[..., tuple[int, str, str]]
"""From arguments to exit code, standard output and standard error."""


def runner(capsys: pytest.CaptureFixture[str], command: str) -> Run:
    """Runs a subcommand in this process."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main([command, *arguments])
        except SystemExit as ended:  # argparse
            code = int(str(ended.code))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
