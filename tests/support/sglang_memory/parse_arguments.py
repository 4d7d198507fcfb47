"""SGLang's own parser reads lists of arguments, as they are rendered into pods.

Reads JSON lists, one a line, and writes for each the fields that it sets, or why the parser refuses
it. It runs like configure.py; `make test-sglang` gives it every rendered list.

    PYTHONPATH=SGLANG python parse_arguments.py < lists.jsonl
"""

import argparse
import contextlib
import io
import json
import sys

from configure import pretend


def main() -> None:
    """Read standard input."""
    pretend("sm_90", 81559)
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    for line in sys.stdin:
        error = io.StringIO()
        try:
            with contextlib.redirect_stderr(error):
                fields = vars(parser.parse_args(json.loads(line)))
        except SystemExit:
            _write({"error": error.getvalue().strip().splitlines()[-1]})
            continue
        given = {
            key: str(value) for key, value in fields.items() if value != parser.get_default(key)
        }
        _write(given)


def _write(answer: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
