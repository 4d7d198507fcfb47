"""Reads the memory corrections that the operator uses, from a file or from its ConfigMap."""

import argparse
import sys
from typing import Final

from tonnage.api.names import CORRECTIONS_CONFIG_MAP
from tonnage.catalog.catalog import Catalog
from tonnage.cli.sources.corrections import add_corrections_argument, read_corrections
from tonnage.cli.sources.dump import Dump
from tonnage.cli.sources.namespaces import namespace_name
from tonnage.fit.calibration.corrections import NO_CORRECTIONS, KnownCorrections
from tonnage.fit.calibration.entries import read_entries
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import ForbiddenError, NotFoundError

_OPERATOR_NAMESPACE: Final = "tonnage-system"


def add_operator_corrections_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, and the namespace of the ConfigMap that is read without it."""
    add_corrections_argument(parser)
    parser.add_argument(
        "--operator-namespace",
        type=namespace_name,
        default=_OPERATOR_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the operator; ConfigMap {CORRECTIONS_CONFIG_MAP} is read there unless "
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
        config_map = await dump.get(CONFIG_MAPS, options.operator_namespace, CORRECTIONS_CONFIG_MAP)
    except NotFoundError:
        return NO_CORRECTIONS
    except ForbiddenError as error:
        sys.stderr.write(f"planning without memory corrections (see --corrections): {error}\n")
        return NO_CORRECTIONS
    return read_entries(config_map.get("data") or {}, catalog.accelerators).corrections
