"""`tonnage version`: prints the installed version, for bug reports."""

import argparse
import platform

from tonnage import __version__


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(_: argparse.Namespace) -> int:
    """Print the versions of Tonnage and Python, and the operating system."""
    print(f"tonnage {__version__} (Python {platform.python_version()}, {platform.system()})")  # noqa: T201 - the answer
    return 0
