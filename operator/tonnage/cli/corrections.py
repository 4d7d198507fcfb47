"""`--corrections FILE`: what starts have taught, as the ConfigMap `tonnage-corrections` has it."""

import argparse
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.cli.documents import Document, load_documents
from tonnage.cli.errors import InputError
from tonnage.fit.correction_entries import read_entries
from tonnage.fit.corrections import UNCORRECTED, Corrections

_KIND: Final = "ConfigMap"
_SHOWN: Final = 3


def add_corrections_argument(parser: argparse.ArgumentParser) -> None:
    """The file; without it nothing was learnt."""
    parser.add_argument(
        "--corrections",
        metavar="FILE",
        help="what starts have taught about memory: ConfigMap tonnage-corrections, or its data; "
        "- is stdin",
    )


def read_corrections(path: str | None, catalog: Catalog) -> Corrections:
    """The corrections of a file. Raises InputError naming file, key and field."""
    if path is None:
        return UNCORRECTED
    (document, *others) = load_documents(path)
    if others:
        raise InputError(f"{document.file}: holds {1 + len(others)} objects, expected one {_KIND}")
    found = read_entries(_data(document), catalog.accelerators)
    if found.problems:
        told = [f"key {name}: {why}" for name, why in found.problems.items()]
        more = f"; and {len(told) - _SHOWN} more keys" if len(told) > _SHOWN else ""
        raise InputError(f"{document.file}, {'; '.join(told[:_SHOWN])}{more}")
    return found.corrections


def _data(document: Document) -> Mapping[str, object]:
    """The entries: `data` of a ConfigMap, or the file itself where it is no object of a cluster."""
    body = document.body
    if "kind" not in body and "apiVersion" not in body:
        return {str(name): entry for name, entry in body.items()}
    if document.kind != _KIND:
        raise InputError(f"{document.source}: expected a {_KIND}, or its data")
    data = body.get("data") or {}
    if not isinstance(data, dict):
        raise InputError(f"{document.source}: data: expected a key for each correction")
    return {str(name): entry for name, entry in data.items()}
