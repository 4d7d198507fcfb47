"""Reads lists of arguments with the parser of `vllm serve`, in an environment that has vLLM.

Standard input is a list of lists in JSON. The answer on standard output has the parser's own help,
the environment variables that vLLM knows, and for each list what it was read as, or why it was
refused. There is no Tonnage where this runs: `tests/support/engines/vllm_arguments.py` is the other
side.
"""

import contextlib
import io
import json
import os
import sys
from importlib.util import find_spec
from typing import Any

_HELP = "--help=all"


def _make_parser() -> Any:
    """The parser of the `vllm` command with `serve` in it, put together as vLLM itself does."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.serve.utils.api_utils import VLLM_SUBCMD_PARSER_EPILOG
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(description="vLLM CLI")
    serve = parser.add_subparsers(required=False, dest="subparser").add_parser(
        "serve", usage="vllm serve [model_tag] [options]"
    )
    make_arg_parser(serve).epilog = VLLM_SUBCMD_PARSER_EPILOG.format(subcmd="serve")
    return parser


def _run(parser: Any, arguments: list[str]) -> tuple[dict[str, Any] | None, str]:
    """What the arguments were read as, None when the parser ended the process; and what it said."""
    said = io.StringIO()
    # The parser looks at the command line of the process besides the list that it is given.
    sys.argv = ["vllm", "serve", *arguments]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            return vars(parser.parse_args(sys.argv[1:])), said.getvalue()
        except SystemExit:
            return None, said.getvalue()
        except ValueError as error:  # of a value that the parser's own checks find wrong
            return None, str(error)


def main() -> None:
    """Answer one question."""
    os.environ["COLUMNS"] = "80"  # the width of the help
    sys.argv = ["vllm", "serve", _HELP]  # or flags are made without their descriptions
    if find_spec("torch") is None:
        import stand_in_torch

        stand_in_torch.install()
        os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"  # or xgrammar compiles for it
    parser = _make_parser()
    answers = []
    for arguments in json.load(sys.stdin):
        values, said = _run(parser, arguments)
        answers.append({"values": values, "refused": said if values is None else None})
    result = {
        "help": _run(parser, [_HELP])[1],
        "variables": _list_variables(),
        "answers": answers,
    }
    json.dump(result, sys.stdout, default=repr)


def _list_variables() -> list[str]:
    """The environment variables that vLLM knows; another one of its prefix it only warns of."""
    import vllm.envs

    return sorted(vllm.envs.environment_variables)


if __name__ == "__main__":
    main()
