"""The names of namespaces on the command line and in files."""

import argparse
import re
from typing import Final

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def add_namespace_argument(
    parser: argparse.ArgumentParser, purpose: str = "its namespace (default: that of the context)"
) -> None:
    """Add `--namespace`."""
    parser.add_argument("-n", "--namespace", type=namespace_name, help=purpose)


def is_namespace_name(value: object) -> bool:
    """Whether the value can name a namespace."""
    return isinstance(value, str) and _NAMESPACE.fullmatch(value) is not None


def namespace_name(text: str) -> str:
    """The text, if it can name a namespace. Raises ArgumentTypeError."""
    if not is_namespace_name(text):
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is no name of a namespace: expected at most 63 lowercase letters, "
            "digits and '-', with a letter or digit at both ends"
        )
    return text
