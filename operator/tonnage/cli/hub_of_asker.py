"""The Hub that models come from, asked now in the name of the person who asks.

That person's token goes to a Hub of their own choice only. Whoever may create a Deployment in the
cluster, or wrote the dump, could else name the address that it is sent to.
"""

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
        "it has made say, else the public one); your token is sent to one that is given here, or "
        "to the public one",
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


def hub_of_asker(given: str | None, used: str | None) -> HubLookup:
    """Asks the Hub that is `used` and waits for its answer; `given` is the one the person named.

    Another one, which only Deployments tell, gets no token.
    """
    token = saved_token() if used == given else None
    return partial(_ask, HubSettings(endpoint=used), token)


def _ask(
    settings: HubSettings, token: str | None, source: HuggingFaceSource, _: str | None
) -> ModelAnswer:
    try:
        return fetch_checkpoint(source, token, settings)
    except ModelLookupError as error:
        return ModelUnavailable(error.reason, error.message, error.retry_after_seconds)
