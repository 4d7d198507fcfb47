"""Reads memory corrections from `--corrections FILE` or from the operator's ConfigMap."""

import argparse
import sys
from collections.abc import Mapping
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.cli.errors import InputError
from tonnage.cli.sources.documents import Document, load_documents
from tonnage.cli.sources.dump import Dump
from tonnage.controller.correction_store import CONFIG_MAP
from tonnage.fit.calibration.corrections import NO_CORRECTIONS, KnownCorrections
from tonnage.fit.calibration.entries import read_entries
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import ForbiddenError, NotFoundError

_KIND: Final = CONFIG_MAPS.kind
_OPERATOR_NAMESPACE: Final = "tonnage-system"
_MAX_PROBLEMS: Final = 3


def add_corrections_argument(parser: argparse.ArgumentParser) -> None:
    """Add the file; without it there are no corrections."""
    parser.add_argument(
        "--corrections",
        metavar="FILE",
        help=f"memory corrections from earlier starts: ConfigMap {CONFIG_MAP}, or its data; "
        "- is stdin",
    )


def add_operator_namespace_argument(parser: argparse.ArgumentParser) -> None:
    """Add the namespace of the ConfigMap with the operator's corrections."""
    parser.add_argument(
        "--operator-namespace",
        default=_OPERATOR_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the operator; ConfigMap {CONFIG_MAP} is read there unless "
        f"--corrections is given (default: {_OPERATOR_NAMESPACE})",
    )


async def read_operator_corrections(
    options: argparse.Namespace, dump: Dump, catalog: Catalog
) -> KnownCorrections:
    """The corrections of the given file, else of the operator's ConfigMap. Invalid entries of the
    ConfigMap are ignored, as the operator does. Raises InputError for the file."""
    if options.corrections is not None:
        return read_corrections(options.corrections, catalog)
    try:
        config_map = await dump.get(CONFIG_MAPS, options.operator_namespace, CONFIG_MAP)
    except NotFoundError:
        return NO_CORRECTIONS
    except ForbiddenError as error:
        sys.stderr.write(f"planning without memory corrections (see --corrections): {error}\n")
        return NO_CORRECTIONS
    return read_entries(config_map.get("data") or {}, catalog.accelerators).corrections


def read_corrections(path: str | None, catalog: Catalog) -> KnownCorrections:
    """The corrections of a file. Raises InputError naming file, key and field."""
    if path is None:
        return NO_CORRECTIONS
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
    data = body.get("data") or {}
    if not isinstance(data, dict):
        raise InputError(f"{document.source}: data: expected a key for each correction")
    return {str(name): entry for name, entry in data.items()}
