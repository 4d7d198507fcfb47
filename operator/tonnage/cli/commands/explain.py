"""`tonnage explain NAME`: explains one object, from its model to the next steps."""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tonnage.api.names import INFERENCE_DEPLOYMENT, INFERENCE_DEPLOYMENT_WORDS, owner_of
from tonnage.catalog.load import load_catalog
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.explain.claims import read_pod_claims
from tonnage.cli.explain.explanation import Explanation, explanation_data, list_next_steps
from tonnage.cli.explain.starts import LOGS
from tonnage.cli.explain.view import show_explanation
from tonnage.cli.output import TABLE, add_output_argument, make_console, write_data
from tonnage.cli.plan.planning import observe_in, plan_all
from tonnage.cli.sources.documents import Document
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
from tonnage.controller.download_reader import DownloadReader
from tonnage.controller.start_reader import StartReader
from tonnage.fleet.fleet import build_pools
from tonnage.kube.kinds import RESOURCE_CLAIMS
from tonnage.kube.protocol import ClusterReader, Kind
from tonnage.reconcile.key import Key
from tonnage.reconcile.scheduling.context import Dependencies

_CHILD_KINDS: Final = {
    "deploy": "Deployment",
    "deployment": "Deployment",
    "deployments": "Deployment",
    "lws": "LeaderWorkerSet",
    "leaderworkerset": "LeaderWorkerSet",
    "leaderworkersets": "LeaderWorkerSet",
    "svc": "Service",
    "service": "Service",
    "services": "Service",
    "po": "Pod",
    "pod": "Pod",
    "pods": "Pod",
}
"""Kinds of children by their names in kubectl."""

_EXAMPLES: Final = """\
examples:
  tonnage explain llama-70b -n chat
  tonnage explain pod/llama-70b-mi300x-5d9c7-x2x8k -n chat     # the object that owns the pod

  # without the cluster, from one dump of it
  kubectl get nodes,pods,apool,infd,deploy,svc,pdb,priorityclass -A -o yaml > cluster.yaml
  tonnage explain llama-70b -n chat --nodes cluster.yaml

exit codes: 0 explained, 2 no such object, or unusable input
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the object, its namespace, and the output format."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "name",
        type=_object_argument,
        metavar="NAME",
        help="an InferenceDeployment (NAME or infd/NAME), or a child of one (deploy/NAME, "
        "svc/NAME, pod/NAME)",
    )
    add_namespace_argument(parser)
    add_hub_argument(parser)
    add_render_arguments(parser)
    add_operator_corrections_arguments(parser)
    add_fleet_arguments(parser)
    add_kinds_argument(parser)
    add_cluster_arguments(parser)
    add_output_argument(parser)


def _object_argument(text: str) -> str:
    if not text.rpartition("/")[2]:
        raise argparse.ArgumentTypeError(f"{text!r} has no name; give NAME or KIND/NAME")
    return text


def run(options: argparse.Namespace) -> int:
    """Print the explanation of one object."""
    explanation = asyncio.run(_explain(options))
    if options.output == TABLE:
        show_explanation(make_console(), explanation)
    else:
        write_data(options.output, explanation_data(explanation))
    return ExitCode.DONE


async def _explain(options: argparse.Namespace) -> Explanation:
    if options.nodes is not None:
        namespace = options.namespace or DEFAULT_NAMESPACE
        return await _explain_in(options, load_cluster(options), namespace)
    namespace = namespace_of(options)
    async with open_cluster(options) as api:
        cluster = load_cluster(options, live=await read_cluster(api))
        served = await find_group_kinds(api)
        return await _explain_in(options, cluster, namespace, api, served=served)


async def _explain_in(
    options: argparse.Namespace,
    cluster: Sequence[Document],
    namespace: str,
    fallback: ClusterReader | None = None,
    *,
    served: frozenset[Kind] = GROUP_KINDS,
) -> Explanation:
    """Observe the object and plan it as the operator would now; `served` are the kinds for
    replicas on several nodes that the cluster has."""
    now = datetime.now(UTC)
    kinds = group_kinds(options, served)
    dump = Dump(cluster, DEFAULT_NAMESPACE, now, fallback, group_kinds=kinds)
    key = Key(namespace, _resolve_name(options.name, namespace, dump))
    endpoint = find_operator_hub(options.hf_endpoint, dump)
    ask_hub = make_user_hub_lookup(options.hf_endpoint, endpoint)
    # The caller wants to know now, and a start that ends is of no interest.
    starts = StartReader(dump, lambda: now, lambda _: None, timedelta(), LOGS)
    downloads = DownloadReader(dump, lambda: now)
    observation = await observe_in(dump, ask_hub, key, starts.read, downloads.read)
    if observation is None:
        raise InputError(f"{INFERENCE_DEPLOYMENT} {key} not found, or it is being deleted")
    fleet, catalog = read_fleet(dump, observation.shard), load_catalog()
    corrections = await read_operator_corrections(options, dump, catalog)
    settings = read_render_settings(options, endpoint)
    dependencies = Dependencies(catalog, settings, corrections=corrections)
    (planned,) = await plan_all([observation], dump, fleet, dependencies, now)
    bodies = dump.bodies(RESOURCE_CLAIMS.kind)
    claims = read_pod_claims(bodies, key.namespace, observation.pods)
    steps = list_next_steps(planned, now)
    return Explanation(planned, build_pools(fleet, catalog), steps, now, claims)


def _resolve_name(argument: str, namespace: str, dump: Dump) -> str:
    """The InferenceDeployment that `NAME` or `KIND/NAME` refers to. Raises InputError."""
    kind, slash, name = argument.rpartition("/")
    if not slash or kind.lower().partition(".")[0] in INFERENCE_DEPLOYMENT_WORDS:
        return name
    child = _CHILD_KINDS.get(kind.lower().partition(".")[0])
    if child is None:
        kinds = ", ".join([INFERENCE_DEPLOYMENT_WORDS[0], *dict.fromkeys(_CHILD_KINDS)])
        raise InputError(
            f"{argument}: {kind!r} is none of the kinds that can be explained: {kinds}"
        )
    for body in dump.bodies(child):
        metadata = body["metadata"]
        if (metadata["namespace"], metadata["name"]) == (namespace, name):
            owner = owner_of(metadata["labels"])
            if isinstance(owner, str):
                return owner
            raise InputError(f"{child} {namespace}/{name} belongs to no {INFERENCE_DEPLOYMENT}")
    raise InputError(f"{child} {namespace}/{name} not found")
