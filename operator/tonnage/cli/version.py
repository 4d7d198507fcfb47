"""`tonnage version`: what is installed, for bug reports."""

import argparse
import platform

from tonnage import __version__


def add_arguments(_: argparse.ArgumentParser) -> None:
    """There is nothing to choose."""


def run(_: argparse.Namespace) -> int:
    """Print Tonnage's version and what it runs on."""
    print(f"tonnage {__version__} (Python {platform.python_version()}, {platform.system()})")  # noqa: T201 - the answer
    return 0
