"""`tonnage plan`: what the operator would do, from files or beside a cluster, without writing.

The functions are the operator's own; only what they are given comes from files. Objects are planned
in the order of their creation, each in the fleet that the ones before it have left.
"""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.load import load_catalog
from tonnage.cli.corrections import (
    add_corrections_argument,
    add_operators_namespace_argument,
    operators_corrections,
)
from tonnage.cli.declared import Declared, find_declared, in_order_of_creation
from tonnage.cli.documents import Document, load_manifests
from tonnage.cli.dump import Dump
from tonnage.cli.endpoints import observe_endpoints
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.fleet_files import add_fleet_arguments, load_cluster, read_fleet
from tonnage.cli.hub_of_asker import add_hub_argument, hub_of_asker, operators_hub
from tonnage.cli.live_cluster import (
    DEFAULT_NAMESPACE,
    add_cluster_arguments,
    namespace_of,
    open_cluster,
    read_cluster,
)
from tonnage.cli.output import TABLE, add_output_argument, make_console, write_data
from tonnage.cli.plan_diff import diff_plan, show_diff
from tonnage.cli.plan_together import assignment_data, optimise, show_assignment
from tonnage.cli.plan_view import show_plan
from tonnage.cli.planning import Planned, observe_declared, plan_all
from tonnage.kube.protocol import ClusterReader
from tonnage.placement.assignment import Assignment
from tonnage.reconcile.context import Dependencies
from tonnage.reconcile.observe import Observation
from tonnage.render.model import RenderSettings

_Answer = tuple[list[Planned], Assignment | None]
"""The plans, and the assignment of all objects together where that was asked for."""

_EXAMPLES: Final = """\
examples:
  # in CI, with a dump of the cluster's nodes
  tonnage plan -f llama.yaml --nodes nodes.yaml

  # a running cluster, from one dump of all that the operator looks at
  kubectl get nodes,pods,apool,infd,deploy,svc,priorityclass -A -o yaml > cluster.yaml
  tonnage plan -f llama.yaml --nodes cluster.yaml -o yaml

  # the cluster of the kubeconfig: what would run where, and what would change
  tonnage plan -f llama.yaml
  tonnage plan -f llama.yaml --diff

exit codes:
  0  every replica would be placed, if need be once its plan is approved; with --diff also:
     nothing would change
  1  with --diff: something would change
  2  the command line, a file or the cluster cannot be used
  3  some replica would not be placed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The objects, the fleet, and the form of the answer."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="InferenceDeployments, and the ConfigMaps they name: a file, a folder of manifests, "
        "or - for standard input; can be given several times",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        help="namespace of objects that name none (default: default; where a cluster is read, "
        "that of the context)",
    )
    parser.add_argument(
        "--diff",
        action="store_true",
        help="show what would change in the cluster of the kubeconfig, as kubectl diff does",
    )
    parser.add_argument(
        "--optimize",
        action="store_true",
        help="show also the cheapest assignment of all new objects together, where one after "
        "another is not the best (needs the extra `tonnage[optimize]`)",
    )
    add_hub_argument(parser)
    add_corrections_argument(parser)
    add_operators_namespace_argument(parser)
    add_fleet_arguments(parser)
    add_cluster_arguments(parser)
    add_output_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plan of every object, or what it changes; exit with 3 where one is not placed."""
    if options.diff and (options.output != TABLE or options.optimize):
        raise InputError("--diff prints a diff and nothing else: leave out -o and --optimize")
    given = [document for path in options.filename for document in load_manifests(path)]
    planned, together = asyncio.run(_plan(options, given))
    changed = False
    if options.diff:
        changed = show_diff(make_console(), [diff_plan(one) for one in planned])
    else:
        _show(options.output, planned, together)
    if not all(one.is_placed for one in planned):
        return ExitCode.ANSWER_IS_NO
    return ExitCode.DIFFERENT if changed else ExitCode.DONE


async def _plan(options: argparse.Namespace, given: Sequence[Document]) -> _Answer:
    if options.nodes is not None and not options.diff:
        namespace = options.namespace or DEFAULT_NAMESPACE
        return await _plan_in(options, given, load_cluster(options), namespace)
    namespace = namespace_of(options)
    async with open_cluster(options) as api:
        cluster = load_cluster(options, live=await read_cluster(api))
        return await _plan_in(options, given, cluster, namespace, beyond=api)


async def _plan_in(
    options: argparse.Namespace,
    given: Sequence[Document],
    cluster: Sequence[Document],
    namespace: str,
    beyond: ClusterReader | None = None,
) -> _Answer:
    """Plan the given objects in this cluster as if they were applied to it now."""
    now = datetime.now(UTC)
    declared = _find(options, given, namespace)
    dump = Dump(cluster, namespace, now, beyond)
    for document in given:
        dump.apply(document, now)
    endpoint = operators_hub(options.hf_endpoint, dump)
    catalog = load_catalog()
    corrections = await operators_corrections(options, dump, catalog)
    world = Dependencies(catalog, RenderSettings(hf_endpoint=endpoint), corrections=corrections)
    ask_hub = hub_of_asker(options.hf_endpoint, endpoint)
    observations = await observe_declared(declared, dump, ask_hub)
    observations = await observe_endpoints(observations, dump, ask_hub, now)
    fleet = read_fleet(dump, _shard_of(observations))
    planned = await plan_all(observations, dump, fleet, world, now)
    return planned, optimise(planned, fleet, world) if options.optimize else None


def _shard_of(observations: Sequence[Observation]) -> Shard:
    """The shard of all of them. Raises InputError where they are of several: no plan is for two
    operators."""
    shards = {found.shard: found.key for found in observations}
    if len(shards) > 1:
        told = ", ".join(f"{key} is of {shard}" for shard, key in shards.items())
        raise InputError(f"{told}: expected objects of one shard, plan the others by themselves")
    return next(iter(shards), UNNAMED_SHARD)


def _find(options: argparse.Namespace, given: Sequence[Document], namespace: str) -> list[Declared]:
    declared = find_declared(given, namespace)
    if not declared:
        raise InputError(f"{', '.join(options.filename)}: no {INFERENCE_DEPLOYMENT} found")
    return in_order_of_creation(declared)


def _show(form: str, planned: Sequence[Planned], together: Assignment | None) -> None:
    if form != TABLE:
        beside = {"optimized": assignment_data(together)} if together else {}
        write_data(form, {"items": [_as_data(one) for one in planned], **beside})
        return
    console = make_console()
    for one in planned:
        show_plan(console, one.key, one.plan)
    if together is not None:
        show_assignment(console, together)


def _as_data(one: Planned) -> dict[str, Any]:
    return {
        "namespace": one.key.namespace,
        "name": one.key.name,
        "status": one.plan.status.to_dict(),
        "manifests": one.manifests,
    }
