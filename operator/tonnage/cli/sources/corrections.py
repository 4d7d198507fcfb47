"""Reads memory corrections from `--corrections FILE`."""

import argparse
from collections.abc import Mapping
from typing import Final

from tonnage.api.names import CORRECTIONS_CONFIG_MAP
from tonnage.catalog.catalog import Catalog
from tonnage.cli.errors import InputError
from tonnage.cli.sources.documents import Document, load_documents
from tonnage.fit.calibration.corrections import NO_CORRECTIONS, KnownCorrections

_KIND: Final = "ConfigMap"
_MAX_PROBLEMS: Final = 3


def add_corrections_argument(parser: argparse.ArgumentParser) -> None:
    """Add the file; without it there are no corrections."""
    parser.add_argument(
        "--corrections",
        metavar="FILE",
        help=f"memory corrections from earlier starts: ConfigMap {CORRECTIONS_CONFIG_MAP}, or its "
        "data; - is stdin",
    )


def read_corrections(path: str | None, catalog: Catalog) -> KnownCorrections:
    """The corrections of a file. Raises InputError naming file, key and field."""
    if path is None:
        return NO_CORRECTIONS
    # The models of the API take a tenth of the time of `tonnage fit`, which needs no others.
    from tonnage.fit.calibration.entries import read_entries  # noqa: PLC0415 - see above

    (document, *others) = load_documents(path)
    if others:
        raise InputError(f"{document.file}: holds {1 + len(others)} objects, expected one {_KIND}")
    entries = read_entries(_get_entries(document), catalog.accelerators)
    if entries.problems:
        problems = [f"key {name}: {why}" for name, why in entries.problems.items()]
        left_out = len(problems) - _MAX_PROBLEMS
        more = f"; and {left_out} more keys" if left_out > 0 else ""
        raise InputError(f"{document.file}, {'; '.join(problems[:_MAX_PROBLEMS])}{more}")
    return entries.corrections


def _get_entries(document: Document) -> Mapping[str, object]:
    """The `data` of a ConfigMap, or the whole file if it is not a Kubernetes object."""
    body = document.body
    if "kind" not in body and "apiVersion" not in body:
        return {str(name): entry for name, entry in body.items()}
    if document.kind != _KIND:
        raise InputError(f"{document.source}: expected a {_KIND}, or its data")
    return {str(name): entry for name, entry in body.get("data", {}).items()}
