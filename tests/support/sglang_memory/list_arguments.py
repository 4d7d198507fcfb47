"""Writes catalog/data/sglang_arguments.yaml: the arguments that SGLang's own parser has.

It runs like configure.py. The argument is the day of the run.

    PYTHONPATH=SGLANG python list_arguments.py 2026-11-27 > sglang_arguments.yaml

`make test-sglang` compares the file with what it writes.
"""

import argparse
import json
import sys
from typing import Any

from configure import pretend

HEAD = """\
# Every argument of SGLang's parser by its first name without dashes: other names (also), how many
# values (nargs of argparse, one without it), the name of the function that reads a value (str
# without it), and the values that it takes.
# Written by tests/support/sglang_memory/list_arguments.py. Source: ServerArgs.add_cli_args in
# sglang/srt/server_args.py of its wheel on PyPI.
"""


def describe(action: argparse.Action) -> tuple[str, dict[str, Any]]:
    """The name of one argument, and what argparse does with it, without what is usual."""
    name, *also = [each.removeprefix("--") for each in action.option_strings]
    reader = getattr(action.type, "__name__", "str")
    whole = {
        "also": also,
        "nargs": None if action.nargs is None else str(action.nargs),
        "reader": None if reader == "str" else reader,
        "choices": sorted(str(each) for each in action.choices or ()),  # some are sets
        "required": action.required,
    }
    return name, {key: value for key, value in whole.items() if value}


def main() -> None:
    """Write the file with the date that the command line says."""
    pretend("sm_90", 81559)
    from sglang.srt.server_args import ServerArgs
    from sglang.version import __version__

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    sys.stdout.write(f"{HEAD}compiled: {sys.argv[1]}\nversion: {__version__}\narguments:\n")
    for name, row in map(describe, parser._actions):
        sys.stdout.write(f"  {name}: {json.dumps(row)}\n")


if __name__ == "__main__":
    main()
