"""`tonnage pools`: what the operator would see of a cluster, from a dump of its nodes."""

import argparse
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.markup import escape

from tonnage.catalog.load import load_catalog
from tonnage.cli.errors import ExitCode
from tonnage.cli.fleet_files import add_fleet_arguments, read_fleet
from tonnage.cli.output import TABLE, add_output_argument, make_console, make_table, write_data
from tonnage.fleet.model import Pool
from tonnage.fleet.pools import build_pools
from tonnage.fleet.report import pool_readiness

_GIB = 2**30
_BAR_COLUMNS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The fleet, and the form of the answer."""
    add_fleet_arguments(parser)
    add_output_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Print the pools; exit with 3 when nothing can be placed on any of them."""
    pools = build_pools(read_fleet(options), load_catalog())
    if options.output == TABLE:
        show_pools(make_console(), pools)
    else:
        write_data(options.output, [_as_data(pool) for pool in pools])
    ready = any(pool_readiness(pool).ready for pool in pools)
    return ExitCode.DONE if ready else ExitCode.ANSWER_IS_NO


def show_pools(console: Console, pools: tuple[Pool, ...]) -> None:
    """One line a pool with a bar of its GPUs, then what stands in the way of using them."""
    if not pools:
        console.print("No node offers GPUs.")
        return
    numbers = ("MEMORY", "NODES", "GPUS", "USABLE", "FREE", "LARGEST")
    table = make_table("POOL", "ACCELERATOR", *numbers, "IN USE", right=numbers)
    for pool in pools:
        table.add_row(
            escape(pool.name),
            pool.accelerator.id if pool.accelerator else "-",
            f"{pool.device_bytes / _GIB:.1f} GiB" if pool.device_bytes else "-",
            str(len(pool.nodes)),
            str(pool.total),
            str(pool.allocatable),
            str(pool.free),
            str(pool.largest_free_block),
            _bar(pool),
        )
    console.print(table)
    for problem in (problem for pool in pools for problem in _problems(pool)):
        console.print(f"  {escape(problem)}", soft_wrap=True)


def _bar(pool: Pool) -> Bar:
    """The share of the usable GPUs that is taken."""
    used = pool.allocatable - pool.free
    return Bar(
        max(pool.allocatable, 1), 0, used, width=_BAR_COLUMNS, color="cyan", bgcolor="grey23"
    )


def _problems(pool: Pool) -> list[str]:
    """Why the pool, or single nodes of it, are no capacity."""
    readiness = pool_readiness(pool)
    problems = [] if readiness.ready else [f"{pool.name}: {readiness.message}"]
    return problems + [
        f"{pool.name}: node {node.name} is not used: {node.unusable}"
        for node in pool.nodes
        if node.unusable and readiness.ready
    ]


def _as_data(pool: Pool) -> dict[str, Any]:
    readiness = pool_readiness(pool)
    return {
        "name": pool.name,
        "discovered": pool.declared is None,
        "accelerator": pool.accelerator.id if pool.accelerator else None,
        "ready": readiness.ready,
        "message": readiness.message,
        "resource": pool.resource,
        "deviceBytes": pool.device_bytes,
        "gpus": {
            "total": pool.total,
            "allocatable": pool.allocatable,
            "free": pool.free,
            "largestFreeBlock": pool.largest_free_block,
        },
        "nodeSelector": {label: list(values) for label, values in pool.node_selector.items()},
        "taints": [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in pool.taints
        ],
        "nodes": [
            {
                "name": node.name,
                "gpus": node.gpus,
                "allocatable": node.allocatable,
                "free": node.free,
                "unusable": node.unusable,
            }
            for node in pool.nodes
        ],
    }
