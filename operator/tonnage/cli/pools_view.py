"""Formats pools as tables, with a line for each pool and each node, and as JSON data."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tonnage.catalog.prices import format_money
from tonnage.cli.output import make_table, print_line
from tonnage.fleet.model import Pool
from tonnage.fleet.pool_nodes import PoolNode
from tonnage.fleet.pools.report import pool_readiness
from tonnage.placement.pricing import price_per_device_hour, price_per_gpu_hour

_GIB: Final = 2**30
_BAR_COLUMNS: Final = 24
_NODES_SHOWN: Final = 8
"""Nodes shown for each pool without --all."""


def show_pools(console: Console, pools: Sequence[Pool], *, every_node: bool) -> None:
    """Print the pools, why a pool cannot be used, and the nodes."""
    if not pools:
        console.print("No node offers GPUs.")
        return
    console.print(tabulate_pools(pools))
    for pool in pools:
        readiness = pool_readiness(pool)
        if not readiness.ready or pool.overlaps:
            print_line(console, f"  {escape(f'{pool.name}: {readiness.message}')}")
        else:
            for note in pool.notes:
                print_line(console, f"  {escape(f'{pool.name}: {note}')}")
    for line in _format_equal_devices(pools):
        print_line(console, f"  {escape(line)}")
    console.print()
    _show_nodes(console, pools, every_node=every_node)


def _format_equal_devices(pools: Iterable[Pool]) -> Iterator[str]:
    """Name discovered pools with equal devices, which no common label selects."""
    by_devices: dict[object, list[Pool]] = {}
    for pool in pools:
        if pool.declared is None and pool.accelerator is not None:
            devices = (pool.accelerator.id, pool.device_bytes, pool.resource, pool.partition)
            by_devices.setdefault(devices, []).append(pool)
    for equal in by_devices.values():
        if len(equal) > 1:
            names = ", ".join(pool.name for pool in equal)
            yield (
                f"{names}: the same devices under different labels; for one pool, label their "
                "nodes alike, or declare an AcceleratorPool with a label that all of them have"
            )


def tabulate_pools(pools: Iterable[Pool]) -> Table:
    """A table with a line for each pool."""
    numbers = ("MEMORY", "NODES", "GPUS", "USABLE", "FREE", "LARGEST", "$/GPU/H")
    table = make_table("POOL", "ACCELERATOR", *numbers, "PRICE", "IN USE", right=numbers)
    for pool in pools:
        price, source = price_per_device_hour(pool)
        table.add_row(
            escape(pool.name),
            pool.accelerator.id if pool.accelerator else "-",
            f"{pool.device_bytes / _GIB:.1f} GiB" if pool.device_bytes else "-",
            str(len(pool.nodes)),
            str(pool.total),
            str(pool.allocatable),
            str(pool.free),
            str(pool.largest_free_block),
            "-" if price is None else format_money(price),
            escape(source.text.removesuffix(f" {pool.name}")),
            _draw_bar(pool.allocatable, pool.free),
        )
    return table


def _show_nodes(console: Console, pools: Iterable[Pool], *, every_node: bool) -> None:
    numbers = ("GPUS", "FREE")
    table = make_table("NODE", "POOL", *numbers, "IN USE", "NOT USED BECAUSE", right=numbers)
    for pool in pools:
        shown = pool.nodes if every_node else pool.nodes[:_NODES_SHOWN]
        for node in shown:
            table.add_row(
                escape(node.name),
                escape(pool.name),
                str(node.gpus),
                str(node.free),
                _draw_bar(node.allocatable, node.free),
                escape(node.unusable or ""),
                style="dim" if node.unusable else "",
            )
        rest = pool.nodes[len(shown) :]
        if rest:
            table.add_row(f"... {len(rest)} more", escape(pool.name), *_sum_gpus(rest), "", "--all")
    console.print(table)


def _sum_gpus(nodes: Sequence[PoolNode]) -> tuple[str, str]:
    return str(sum(node.gpus for node in nodes)), str(sum(node.free for node in nodes))


def _draw_bar(usable: int, free: int) -> Text:
    """The taken share of the usable GPUs, with one cell for each GPU up to 24."""
    if not usable:
        return Text("-")
    cells = min(usable, _BAR_COLUMNS)
    taken = round((usable - free) * cells / usable)
    return Text.assemble(("█" * taken, "cyan"), ("░" * (cells - taken), "green"))


def pool_data(pool: Pool) -> dict[str, Any]:
    """The pool with its nodes as JSON data."""
    readiness = pool_readiness(pool)
    whole_price, _ = price_per_gpu_hour(pool)
    price, source = price_per_device_hour(pool)
    return {
        "name": pool.name,
        "discovered": pool.declared is None,
        "accelerator": pool.accelerator.id if pool.accelerator else None,
        "ready": readiness.ready,
        "message": readiness.message,
        "notes": list(pool.notes),
        "resource": pool.resource,
        "deviceBytes": pool.device_bytes,
        "partition": pool.partition.mode if pool.partition else None,
        "costPerGPUHour": None if whole_price is None else format_money(whole_price),
        "costPerDeviceHour": None if price is None else format_money(price),
        "priceSource": source.text,
        "gpus": {
            "total": pool.total,
            "allocatable": pool.allocatable,
            "free": pool.free,
            "largestFreeBlock": pool.largest_free_block,
        },
        "nodesToAdd": pool.growth,
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
