"""The Hub that models come from: read now, and with a token of the person who asks."""

import argparse
import os
from functools import partial
from typing import Final

from tonnage.api.inference import HuggingFaceSource
from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY, VLLM_CONTAINER
from tonnage.checkpoint.hub import HubSettings, fetch_checkpoint, saved_token
from tonnage.checkpoint.lookup import ModelAnswer, ModelLookupError, ModelUnavailable
from tonnage.cli.dump import Dump
from tonnage.fleet.resources import as_mapping, as_sequence
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.model_source import HubLookup

_VARIABLE: Final = "HF_ENDPOINT"


def add_hub_argument(parser: argparse.ArgumentParser) -> None:
    """Which Hub."""
    parser.add_argument(
        "--hf-endpoint",
        default=os.environ.get(_VARIABLE) or None,
        metavar="URL",
        help=f"the Hub that the operator is set to (env {_VARIABLE}; default: as the Deployments "
        "it has made say, else the public one)",
    )


def operators_hub(given: str | None, dump: Dump) -> str | None:
    """The address of the Hub that the operator is set to; None is the public one.

    It tells every pod, so that what it is set to stands in the Deployments of a dump.
    """
    if given is not None:
        return given
    told = {
        endpoint
        for body in dump.bodies(DEPLOYMENTS.kind)
        if body["metadata"]["labels"].get(LABEL_MANAGED_BY) == MANAGED_BY
        for endpoint in [_endpoint(body)]
    }
    # Those of one object's own making differ from the rest; then nobody knows.
    return told.pop() if len(told) == 1 else None


def _endpoint(deployment: Object) -> str | None:
    pod = as_mapping(as_mapping(as_mapping(deployment.get("spec")).get("template")).get("spec"))
    for container in map(as_mapping, as_sequence(pod.get("containers"))):
        if container.get("name") == VLLM_CONTAINER:
            for variable in map(as_mapping, as_sequence(container.get("env"))):
                value = variable.get("value")
                if variable.get("name") == _VARIABLE and isinstance(value, str):
                    return value
    return None


def hub_of_asker(endpoint: str | None) -> HubLookup:
    """Asks the Hub and waits for its answer."""
    return partial(_ask, HubSettings(endpoint=endpoint))


def _ask(settings: HubSettings, source: HuggingFaceSource, _: str | None) -> ModelAnswer:
    try:
        return fetch_checkpoint(source, saved_token(), settings)
    except ModelLookupError as error:
        return ModelUnavailable(error.reason, error.message, error.retry_after_seconds)
