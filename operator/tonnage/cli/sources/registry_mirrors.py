"""The registry mirrors of the operator, for commands that render pods as it does."""

import argparse
import os
from typing import Final

from tonnage.engines.image_mirrors import Mirrors, parse_mirrors

_VARIABLE: Final = "TONNAGE_REGISTRY_MIRRORS"


def add_mirrors_argument(parser: argparse.ArgumentParser) -> None:
    """Add the registry mirrors of the operator."""
    parser.add_argument(
        "--registry-mirrors",
        type=read_mirrors,
        default=os.environ.get(_VARIABLE) or "",
        metavar="PREFIX=MIRROR,...",
        help="the registry mirrors that the operator has, so that images are those of its pods"
        f" (env {_VARIABLE}; default: none)",
    )


def read_mirrors(text: str) -> Mirrors:
    """Read the value of the flag."""
    try:
        return parse_mirrors(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
