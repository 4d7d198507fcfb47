"""Pages of documentation that are generated from what the program knows."""

import argparse
import sys
from pathlib import Path

from tonnage.cli.errors import ExitCode, InputError


def add_page_argument(parser: argparse.ArgumentParser) -> None:
    """The file to write to."""
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the page to this file (default: print)"
    )


def write_page(page: str, file: Path | None) -> int:
    """Print the page, or write it to its file. Raises InputError for one that cannot be written."""
    if file is None:
        sys.stdout.write(page)
        return ExitCode.DONE
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {file}: cannot write there: {error.strerror}") from None
    return ExitCode.DONE
