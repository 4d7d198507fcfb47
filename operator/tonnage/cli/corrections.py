"""What starts have taught: by `--corrections FILE`, or as the operator's own ConfigMap has it."""

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.cli.documents import Document, load_documents
from tonnage.cli.dump import Dump
from tonnage.cli.errors import InputError
from tonnage.fit.correction_entries import read_entries
from tonnage.fit.corrections import NOTHING_LEARNT, LearntCorrections
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import ForbiddenError, NotFoundError
from tonnage.runtime.correction_store import CONFIG_MAP

_KIND: Final = CONFIG_MAPS.kind
_OPERATORS_NAMESPACE: Final = "tonnage-system"
_SHOWN: Final = 3


def add_corrections_argument(parser: argparse.ArgumentParser) -> None:
    """The file; without it nothing was learnt."""
    parser.add_argument(
        "--corrections",
        metavar="FILE",
        help=f"what starts have taught about memory: ConfigMap {CONFIG_MAP}, or its data; "
        "- is stdin",
    )


def add_operators_namespace_argument(parser: argparse.ArgumentParser) -> None:
    """Where the operator keeps what it has learnt."""
    parser.add_argument(
        "--operator-namespace",
        default=_OPERATORS_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the operator, in which ConfigMap {CONFIG_MAP} is looked for where no "
        f"--corrections are given (default: {_OPERATORS_NAMESPACE})",
    )


async def operators_corrections(
    options: argparse.Namespace, dump: Dump, catalog: Catalog
) -> LearntCorrections:
    """What the operator has learnt: by the file given, else by its ConfigMap. An entry that
    cannot be used is left out, as the operator does it. Raises InputError for the file."""
    if options.corrections is not None:
        return read_corrections(options.corrections, catalog)
    try:
        found = await dump.get(CONFIG_MAPS, options.operator_namespace, CONFIG_MAP)
    except NotFoundError:
        return NOTHING_LEARNT
    except ForbiddenError as error:
        sys.stderr.write(f"planned as if nothing had been learnt (see --corrections): {error}\n")
        return NOTHING_LEARNT
    return read_entries(found.get("data") or {}, catalog.accelerators).corrections


def read_corrections(path: str | None, catalog: Catalog) -> LearntCorrections:
    """The corrections of a file. Raises InputError naming file, key and field."""
    if path is None:
        return NOTHING_LEARNT
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
