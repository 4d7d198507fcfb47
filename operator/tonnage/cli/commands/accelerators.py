"""`tonnage accelerators`: lists the accelerators of the catalogue, as other commands name them."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError
from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.prices import format_money
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import TABLE, add_output_argument, make_console, make_table, write_data
from tonnage.fit.messages import format_gib

_EXAMPLES: Final = """\
examples:
  tonnage accelerators              # all
  tonnage accelerators amd h100     # those of a vendor and of a family
  tonnage accelerators -o json

An id, a family or a vendor in any case names accelerators in `tonnage fit --accelerator` and in
spec.placement.accelerators; an id, or a family of one, in spec.accelerator of an AcceleratorPool.

exit codes: 0 listed, 2 a name that is not in the catalogue
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the names to list, and the output format."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="id, family or vendor to list (default: all)",
    )
    add_output_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Print the accelerators in the order of the catalogue."""
    accelerators = _select(options.names, load_catalog())
    if options.output == TABLE:
        make_console().print(_tabulate(accelerators))
    else:
        write_data(options.output, {"items": [_as_data(one) for one in accelerators]})
    return ExitCode.DONE


def _select(names: Sequence[str], catalog: Catalog) -> Sequence[Accelerator]:
    if not names:
        return tuple(catalog.accelerators.values())
    try:
        named = (one for name in names for one in catalog.accelerators_named(name))
        return tuple(dict.fromkeys(named))
    except UnknownAcceleratorError as error:
        raise InputError(str(error)) from None


def _tabulate(accelerators: Iterable[Accelerator]) -> Table:
    table = make_table(
        "ID", "NAME", "VENDOR", "ARCH", "GiB", "GPUS/NODE", "$/GPU/H", "OF", "NOTE",
        right=("GiB", "GPUS/NODE", "$/GPU/H"),
    )  # fmt: skip
    for one in accelerators:
        price = one.price
        table.add_row(
            escape(one.id),
            escape(one.name),
            one.vendor.value,
            escape(one.arch),
            "-" if one.memory_bytes is None else format_gib(one.memory_bytes),
            "-" if one.gpus_per_node is None else str(one.gpus_per_node),
            "-" if price is None else format_money(price.usd_per_gpu_hour),
            "-" if price is None else price.date,
            escape(_why_unplanned(one) or ""),
        )
    return table


def _why_unplanned(accelerator: Accelerator) -> str | None:
    """Why Tonnage recognises the accelerator, but does not place replicas on it."""
    if not accelerator.supported:
        return f"not planned on: {accelerator.unsupported_reason or 'not supported by vLLM'}"
    if accelerator.memory_bytes is None:
        return "not planned on: the memory that torch sees is not known"
    return None


def _as_data(accelerator: Accelerator) -> dict[str, Any]:
    price = accelerator.price
    return {
        "id": accelerator.id,
        "name": accelerator.name,
        "vendor": accelerator.vendor.value,
        "architecture": accelerator.arch,
        "memoryBytes": accelerator.memory_bytes,
        "gpusPerNode": accelerator.gpus_per_node,
        "supported": accelerator.supported,
        "message": _why_unplanned(accelerator),
        "costPerGPUHour": None if price is None else format_money(price.usd_per_gpu_hour),
        "priceDate": None if price is None else price.date,
        "priceSource": None if price is None else price.source,
    }
