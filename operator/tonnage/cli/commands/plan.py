"""`tonnage plan`: shows what the operator would do, from files or a cluster, without writing.

It runs the functions of the operator on input from files. Objects are planned in the order of their
creation, each in the capacity that earlier ones leave.
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.catalog.load import load_catalog
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import TABLE, add_output_argument, make_console, write_data
from tonnage.cli.plan.advice import PoolAdvice, advice_data, advise_plan
from tonnage.cli.plan.diff import diff_plan, show_diff
from tonnage.cli.plan.endpoints import observe_endpoints
from tonnage.cli.plan.optimize import assignment_data, optimise, show_assignment
from tonnage.cli.plan.planning import Planned, observe_declared, plan_all
from tonnage.cli.plan.view import show_plan
from tonnage.cli.sources.declared import Declared, find_declared, sort_by_creation
from tonnage.cli.sources.documents import Document, load_manifests
from tonnage.cli.sources.dump import GROUP_KINDS, Dump
from tonnage.cli.sources.fleet_files import (
    add_fleet_arguments,
    add_kinds_argument,
    group_kinds,
    load_cluster,
    read_fleet,
)
from tonnage.cli.sources.live_cluster import (
    DEFAULT_NAMESPACE,
    add_cluster_arguments,
    find_group_kinds,
    namespace_of,
    open_cluster,
    read_cluster,
)
from tonnage.cli.sources.namespaces import add_namespace_argument
from tonnage.cli.sources.operator_corrections import (
    add_operator_corrections_arguments,
    read_operator_corrections,
)
from tonnage.cli.sources.render_settings import add_render_arguments, read_render_settings
from tonnage.cli.sources.user_hub import add_hub_argument, find_operator_hub, make_user_hub_lookup
from tonnage.fleet.fleet import build_pools
from tonnage.kube.protocol import ClusterReader, Kind
from tonnage.placement.batches.assignment import Assignment
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.scheduling.context import Dependencies


@dataclass(frozen=True, slots=True)
class _Answer:
    """The plans with the advice for each, and with --optimize the joint assignment of all."""

    planned: Sequence[Planned]
    advice: Mapping[Key, Sequence[PoolAdvice]]
    assignment: Assignment | None


_EXAMPLES: Final = """\
examples:
  # in CI, with a dump of the cluster's nodes
  tonnage plan -f llama.yaml --nodes nodes.yaml

  # a running cluster, from one dump of all kinds that the operator reads
  kubectl get nodes,pods,apool,infd,deploy,svc,pdb,priorityclass -A -o yaml > cluster.yaml
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
    """Add the objects, the fleet, and the output format."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="InferenceDeployments, and ConfigMaps and AcceleratorPools to apply with them: a "
        "file, a folder of manifests, or - for standard input; can be given several times",
    )
    add_namespace_argument(
        parser,
        "namespace of objects that name none (default: default; where a cluster is read, that of "
        "the context)",
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
    add_render_arguments(parser)
    add_operator_corrections_arguments(parser)
    add_fleet_arguments(parser)
    add_kinds_argument(parser)
    add_cluster_arguments(parser)
    add_output_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Print every plan or its diff; exit with 3 if a replica is not placed."""
    if options.diff and (options.output != TABLE or options.optimize):
        raise InputError("--diff prints a diff and nothing else: leave out -o and --optimize")
    manifests = [document for path in options.filename for document in load_manifests(path)]
    answer = asyncio.run(_plan(options, manifests))
    changed = False
    if options.diff:
        changed = show_diff(make_console(), [diff_plan(one) for one in answer.planned])
    else:
        _show(options.output, answer)
    if not all(one.is_placed for one in answer.planned):
        return ExitCode.ANSWER_IS_NO
    return ExitCode.DIFFERENT if changed else ExitCode.DONE


async def _plan(options: argparse.Namespace, manifests: Sequence[Document]) -> _Answer:
    if options.nodes is not None and not options.diff:
        namespace = options.namespace or DEFAULT_NAMESPACE
        return await _plan_in(options, manifests, load_cluster(options), namespace)
    namespace = namespace_of(options)
    async with open_cluster(options) as api:
        cluster = load_cluster(options, live=await read_cluster(api))
        served = await find_group_kinds(api)
        return await _plan_in(options, manifests, cluster, namespace, api, served=served)


async def _plan_in(
    options: argparse.Namespace,
    manifests: Sequence[Document],
    cluster: Sequence[Document],
    namespace: str,
    fallback: ClusterReader | None = None,
    *,
    served: frozenset[Kind] = GROUP_KINDS,
) -> _Answer:
    """Plan the manifests as if they were applied to this cluster now; `served` are the kinds for
    replicas on several nodes that it has."""
    now = datetime.now(UTC)
    declared = _find_declared(options, manifests, namespace)
    kinds = group_kinds(options, served)
    dump = Dump(cluster, namespace, now, fallback, group_kinds=kinds)
    for document in manifests:
        dump.apply(document, now)
    endpoint = find_operator_hub(options.hf_endpoint, dump)
    catalog = load_catalog()
    corrections = await read_operator_corrections(options, dump, catalog)
    settings = read_render_settings(options, endpoint)
    dependencies = Dependencies(catalog, settings, corrections=corrections)
    ask_hub = make_user_hub_lookup(options.hf_endpoint, endpoint)
    observations = await observe_declared(declared, dump, ask_hub)
    observations = await observe_endpoints(observations, dump, ask_hub, now)
    fleet = read_fleet(dump, _shard_of(observations))
    planned = await plan_all(observations, dump, fleet, dependencies, now)
    pools = build_pools(fleet, catalog)
    advice = {one.key: advise_plan(one, pools, dependencies) for one in planned}
    assignment = optimise(planned, fleet, dependencies) if options.optimize else None
    return _Answer(planned, advice, assignment)


def _shard_of(observations: Sequence[Observation]) -> Shard:
    """The shard of all objects. Raises InputError for several shards, because each has its own
    operator."""
    shards = {observation.shard: observation.key for observation in observations}
    if len(shards) > 1:
        members = ", ".join(f"{key} is of {shard}" for shard, key in shards.items())
        raise InputError(f"{members}: expected objects of one shard, plan the others separately")
    return next(iter(shards), UNNAMED_SHARD)


def _find_declared(
    options: argparse.Namespace, manifests: Sequence[Document], namespace: str
) -> list[Declared]:
    declared = find_declared(manifests, namespace)
    if not declared:
        raise InputError(f"{', '.join(options.filename)}: no {INFERENCE_DEPLOYMENT} found")
    return sort_by_creation(declared)


def _show(form: str, answer: _Answer) -> None:
    assignment = answer.assignment
    if form != TABLE:
        optimized = {"optimized": assignment_data(assignment)} if assignment else {}
        items = [_as_data(one, answer.advice[one.key]) for one in answer.planned]
        write_data(form, {"items": items, **optimized})
        return
    console = make_console()
    for one in answer.planned:
        show_plan(console, one.key, one.plan, answer.advice[one.key])
    if assignment is not None:
        show_assignment(console, assignment)


def _as_data(one: Planned, advice: Sequence[PoolAdvice]) -> dict[str, Any]:
    next_steps = {"nextSteps": [advice_data(each) for each in advice]} if advice else {}
    return {
        "namespace": one.key.namespace,
        "name": one.key.name,
        "status": one.plan.status.to_dict(),
        "manifests": one.manifests,
        **next_steps,
    }
