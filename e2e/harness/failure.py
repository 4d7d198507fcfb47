"""The error of the harness that is shown to users."""

from __future__ import annotations

import sys
from collections.abc import Callable


class HarnessError(Exception):
    """Something a user can act on: the message names the thing, its value and what to do."""


def run_cli(main: Callable[[], int]) -> int:
    """Run a command; a user's mistake becomes one sentence, so a traceback is a bug of ours."""
    try:
        return main()
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
