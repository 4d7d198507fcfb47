"""`tonnage explain NAME`: the road of one object, from its model to what happens next."""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from tonnage.api.names import INFERENCE_DEPLOYMENT, LABEL_OWNER
from tonnage.catalog.load import load_catalog
from tonnage.cli.changing import KIND_WORDS
from tonnage.cli.corrections import (
    add_corrections_argument,
    add_operators_namespace_argument,
    operators_corrections,
)
from tonnage.cli.documents import Document
from tonnage.cli.dump import Dump
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.explain_story import Story, story_data, tell_next
from tonnage.cli.explain_view import show_story
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
from tonnage.cli.planning import observe_in, plan_all
from tonnage.fleet.pools import build_pools
from tonnage.kube.protocol import ClusterReader
from tonnage.reconcile.context import Dependencies
from tonnage.reconcile.key import Key
from tonnage.render.model import RenderSettings

_OF_A_CHILD: Final = {
    "deploy": "Deployment",
    "deployment": "Deployment",
    "deployments": "Deployment",
    "svc": "Service",
    "service": "Service",
    "services": "Service",
    "po": "Pod",
    "pod": "Pod",
    "pods": "Pod",
}
"""Kinds of children by the names that kubectl has for them."""

_EXAMPLES: Final = """\
examples:
  tonnage explain llama-70b -n chat
  tonnage explain pod/llama-70b-mi300x-5d9c7-x2x8k -n chat     # the object that the pod is of

  # without the cluster, from one dump of it
  kubectl get nodes,pods,apool,infd,deploy,svc,priorityclass -A -o yaml > cluster.yaml
  tonnage explain llama-70b -n chat --nodes cluster.yaml

exit codes: 0 explained, 2 no such object, or unusable input
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The object, where it lives, and the form of the answer."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "name",
        metavar="NAME",
        help="an InferenceDeployment (NAME or infd/NAME), or a child of one (deploy/NAME, "
        "svc/NAME, pod/NAME)",
    )
    parser.add_argument("-n", "--namespace", help="its namespace (default: that of the context)")
    add_hub_argument(parser)
    add_corrections_argument(parser)
    add_operators_namespace_argument(parser)
    add_fleet_arguments(parser)
    add_cluster_arguments(parser)
    add_output_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Tell the story of one object."""
    story = asyncio.run(_gather(options))
    if options.output == TABLE:
        show_story(make_console(), story)
    else:
        write_data(options.output, story_data(story))
    return ExitCode.DONE


async def _gather(options: argparse.Namespace) -> Story:
    if options.nodes is not None:
        namespace = options.namespace or DEFAULT_NAMESPACE
        return await _gather_in(options, load_cluster(options), namespace)
    namespace = namespace_of(options)
    async with open_cluster(options) as api:
        cluster = load_cluster(options, live=await read_cluster(api))
        return await _gather_in(options, cluster, namespace, beyond=api)


async def _gather_in(
    options: argparse.Namespace,
    cluster: Sequence[Document],
    namespace: str,
    beyond: ClusterReader | None = None,
) -> Story:
    """All that is known of the object, and what the operator would plan for it now."""
    now = datetime.now(UTC)
    dump = Dump(cluster, DEFAULT_NAMESPACE, now, beyond)
    key = Key(namespace, _find_name(options.name, namespace, dump))
    endpoint = operators_hub(options.hf_endpoint, dump)
    observation = await observe_in(dump, hub_of_asker(options.hf_endpoint, endpoint), key)
    if observation is None:
        raise InputError(f"{INFERENCE_DEPLOYMENT} {key} not found, or it is being deleted")
    fleet, catalog = read_fleet(dump, observation.shard), load_catalog()
    corrections = await operators_corrections(options, dump, catalog)
    world = Dependencies(catalog, RenderSettings(hf_endpoint=endpoint), corrections=corrections)
    (planned,) = await plan_all([observation], dump, fleet, world, now)
    return Story(planned, build_pools(fleet, catalog), tell_next(planned, now))


def _find_name(asked: str, namespace: str, dump: Dump) -> str:
    """The InferenceDeployment that is meant by NAME or KIND/NAME. Raises InputError."""
    kind, slash, name = asked.rpartition("/")
    if not slash or kind.lower().partition(".")[0] in KIND_WORDS:
        return name
    child = _OF_A_CHILD.get(kind.lower().partition(".")[0])
    if child is None:
        kinds = ", ".join([KIND_WORDS[0], *dict.fromkeys(_OF_A_CHILD)])
        raise InputError(f"{asked}: {kind!r} is none of the kinds that can be explained: {kinds}")
    for body in dump.bodies(child):
        metadata = body["metadata"]
        if (metadata["namespace"], metadata["name"]) == (namespace, name):
            owner = metadata["labels"].get(LABEL_OWNER)
            if isinstance(owner, str):
                return owner
            raise InputError(f"{child} {namespace}/{name} belongs to no {INFERENCE_DEPLOYMENT}")
    raise InputError(f"{child} {namespace}/{name} not found")
