"""`tonnage pools`: shows the pools of a cluster or of a dump, as the operator sees them."""

import argparse
import asyncio
from datetime import UTC, datetime
from typing import Final

from tonnage.api.shard import Shard
from tonnage.catalog.load import load_catalog
from tonnage.cli.errors import ExitCode
from tonnage.cli.output import TABLE, add_output_argument, make_console, write_data
from tonnage.cli.pools_view import pool_data, show_pools
from tonnage.cli.sources.documents import Document
from tonnage.cli.sources.dump import Dump
from tonnage.cli.sources.fleet_files import add_fleet_arguments, load_cluster, read_fleet
from tonnage.cli.sources.live_cluster import (
    DEFAULT_NAMESPACE,
    add_cluster_arguments,
    open_cluster,
    read_cluster,
)
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.pools.report import pool_readiness

_EXAMPLES: Final = """\
examples:
  tonnage pools                                           # of the cluster of the kubeconfig
  kubectl get nodes,pods,apool -A -o yaml | tonnage pools --nodes -

exit codes: 0 something can be placed, 2 unusable input, 3 nothing can be placed on any pool
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the fleet, the shard, and the output format."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    add_fleet_arguments(parser)
    add_cluster_arguments(parser)
    parser.add_argument(
        "--shard",
        metavar="NAME",
        help="the shard whose nodes and pools are shown (default: those of none)",
    )
    parser.add_argument(
        "--all", action="store_true", help="show every node (default: the first of each pool)"
    )
    add_output_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Print the pools; exit with 3 if none of them can take a replica."""
    dump = Dump(_load(options), DEFAULT_NAMESPACE, datetime.now(UTC))
    pools = build_pools(read_fleet(dump, Shard(options.shard)), load_catalog())
    if options.output == TABLE:
        show_pools(make_console(), pools, every_node=options.all)
    else:
        write_data(options.output, {"items": [pool_data(pool) for pool in pools]})
    ready = any(pool_readiness(pool).ready for pool in pools)
    return ExitCode.DONE if ready else ExitCode.ANSWER_IS_NO


def _load(options: argparse.Namespace) -> list[Document]:
    if options.nodes is not None:
        return load_cluster(options)
    return load_cluster(options, asyncio.run(_read_live(options)))


async def _read_live(options: argparse.Namespace) -> list[Document]:
    async with open_cluster(options) as api:
        return await read_cluster(api)
