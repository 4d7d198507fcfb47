"""`tonnage plan`: what the operator would do, from files, without a cluster or a GPU.

The functions are the operator's own; only what they are given comes from files. Objects are planned
in the order of the files, each in the fleet that the ones before it have left.
"""

import argparse
import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tonnage.api.inference import HuggingFaceSource, ModelSource
from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.hub import HubSettings, fetch_checkpoint, saved_token
from tonnage.checkpoint.lookup import ModelAnswer, ModelLookupError, ModelUnavailable
from tonnage.cli.declared import Declared, ObjectFiles, find_declared
from tonnage.cli.documents import load_documents
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.fleet_files import add_fleet_arguments, read_fleet
from tonnage.cli.output import TABLE, add_output_argument, make_console, write_data
from tonnage.cli.plan_view import show_plan
from tonnage.fleet.model import FleetSnapshot
from tonnage.kube.protocol import ObjectReader
from tonnage.reconcile.actions import Apply
from tonnage.reconcile.model_source import HubLookup, read_model
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.plan import Plan, World, make_plan
from tonnage.render.model import RenderSettings
from tonnage.runtime.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The objects, the fleet, and the form of the answer."""
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="InferenceDeployments, and the ConfigMaps they name; can be given several times",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default="default",
        help="namespace of objects that name none (default: default)",
    )
    parser.add_argument(
        "--hf-endpoint",
        default=os.environ.get("HF_ENDPOINT") or Settings().hf_endpoint,
        metavar="URL",
        help="the Hub that the operator is set to (env HF_ENDPOINT, default %(default)s)",
    )
    add_fleet_arguments(parser)
    add_output_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plan of every object; exit with 3 when one of them could not be placed whole."""
    documents = [document for path in options.filename for document in load_documents(path)]
    declared = find_declared(documents, options.namespace)
    if not declared:
        raise InputError(f"{', '.join(options.filename)}: no {INFERENCE_DEPLOYMENT} found")
    files = ObjectFiles(documents, options.namespace)
    world = World(load_catalog(), RenderSettings(hf_endpoint=options.hf_endpoint))
    sources = Sources(files, partial(_ask_hub, HubSettings(endpoint=options.hf_endpoint)))
    planned = asyncio.run(make_plans(declared, read_fleet(options), sources, world))
    if options.output == TABLE:
        console = make_console()
        for one in planned:
            show_plan(console, one.declared.key, one.plan)
    else:
        write_data(options.output, [_as_data(one) for one in planned])
    placed = all(_is_placed(one.plan) for one in planned)
    return ExitCode.DONE if placed else ExitCode.ANSWER_IS_NO


@dataclass(frozen=True, slots=True)
class Planned:
    """One object and its plan."""

    declared: Declared
    plan: Plan


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the facts of models come from: ConfigMaps in files, and the Hub."""

    files: ObjectReader
    ask_hub: HubLookup


async def make_plans(
    declared: Iterable[Declared], fleet: FleetSnapshot, sources: Sources, world: World
) -> list[Planned]:
    """Plan one object after the other; what one is promised is taken for the next.

    Raises InputError for a spec that the API server would refuse.
    """
    now = datetime.now(UTC)
    planned = []
    for one in declared:
        observation = await _observe(one, sources, now)
        plan = make_plan(observation, fleet, world, now)
        planned.append(Planned(one, plan))
        fleet = replace(fleet, reservations=(*fleet.reservations, *plan.reservations))
    return planned


async def _observe(declared: Declared, sources: Sources, now: datetime) -> Observation:
    """The object as it would be right after it was created: without children or history."""
    try:
        spec = parse_spec(declared.document.body.get("spec"))
    except InvalidSpecError as error:
        raise InputError(f"{declared.document.source}: {error}") from None
    namespace, source = declared.key.namespace, _without_secret(spec.model.source)
    return Observation(
        key=declared.key,
        uid=str(declared.key),
        resource_version="",
        generation=1,
        created=now,
        spec=spec,
        model=await read_model(sources.files, sources.ask_hub, namespace, source),
        previous_status={},
    )


def _without_secret(source: ModelSource) -> ModelSource:
    """The source as it is read here: with the token of the person who asks.

    The Secret that the spec names is in the cluster, and has no place in a file.
    """
    if source.hugging_face is None:
        return source
    hub = source.hugging_face.model_copy(update={"token_secret_ref": None})
    return source.model_copy(update={"hugging_face": hub})


def _ask_hub(settings: HubSettings, source: HuggingFaceSource, _: str | None) -> ModelAnswer:
    try:
        return fetch_checkpoint(source, saved_token(), settings)
    except ModelLookupError as error:
        return ModelUnavailable(error.reason, error.message, error.retry_after_seconds)


def _is_placed(plan: Plan) -> bool:
    return any(
        condition.type == "Placed" and condition.status == "True"
        for condition in plan.status.conditions
    )


def _as_data(one: Planned) -> dict[str, Any]:
    key = one.declared.key
    return {
        "namespace": key.namespace,
        "name": key.name,
        "status": one.plan.status.to_dict(),
        "apply": [action.body for action in one.plan.actions if isinstance(action, Apply)],
    }
