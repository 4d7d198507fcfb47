"""Looks models and adapters up on the Hub with the token of the user who runs the command.

The token is sent only to a Hub that the user chose. Otherwise anyone who can create a Deployment in
the cluster, or who wrote the dump, could choose the address that receives it.
"""

import argparse
import os
from functools import partial
from typing import Final

from tonnage.api.model import HuggingFaceSource
from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY
from tonnage.checkpoint.lookup import (
    AdapterAnswer,
    HubLookup,
    ModelAnswer,
    ModelLookupError,
    ModelUnavailable,
)
from tonnage.cli.sources.dump import Dump
from tonnage.engines.registry import engine_container
from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.kube.protocol import Object
from tonnage.workloads.registry import workload_kind_of

_VARIABLE: Final = "HF_ENDPOINT"


def add_hub_argument(parser: argparse.ArgumentParser) -> None:
    """Add the address of the Hub."""
    parser.add_argument(
        "--hf-endpoint",
        default=os.environ.get(_VARIABLE) or None,
        metavar="URL",
        help=f"the Hub that the operator uses (env {_VARIABLE}; default: the one named in the "
        "operator's Deployments, else the public one); your token is sent only to a Hub given here "
        "or to the public one",
    )


def find_operator_hub(given: str | None, dump: Dump) -> str | None:
    """The address of the Hub that the operator uses; None is the public one.

    The operator passes its address to every pod, so the Deployments of a dump name it.
    """
    if given is not None:
        return given
    endpoints = {
        endpoint
        for body in dump.workloads()
        if body["metadata"]["labels"].get(LABEL_MANAGED_BY) == MANAGED_BY
        for endpoint in [_read_endpoint(body)]
    }
    # An object can set its own variable; then the operator's address is unknown.
    return endpoints.pop() if len(endpoints) == 1 else None


def _read_endpoint(workload: Object) -> str | None:
    pod = as_mapping(workload_kind_of(workload).template(workload)["spec"])
    container = engine_container(pod) or {}
    for variable in map(as_mapping, as_sequence(container.get("env"))):
        value = variable.get("value")
        if variable.get("name") == _VARIABLE and isinstance(value, str):
            return value
    return None


def make_user_hub_lookup(given: str | None, used: str | None) -> HubLookup:
    """Make a lookup on the Hub at `used`; `given` is the address that the user named.

    A Hub that only Deployments name gets no token.
    """
    is_given = used == given
    return HubLookup(partial(_fetch, used, is_given), partial(_fetch_adapter, used, is_given))


def _fetch(
    endpoint: str | None, with_token: bool, source: HuggingFaceSource, _: str | None
) -> ModelAnswer:
    # Models in files need no Hub, whose client takes longer to import than a plan takes.
    from tonnage.checkpoint.hub.reader import (  # noqa: PLC0415 - see above
        HubSettings,
        fetch_checkpoint,
        saved_token,
    )

    try:
        token = saved_token() if with_token else None
        return fetch_checkpoint(source, token, HubSettings(endpoint=endpoint))
    except ModelLookupError as error:
        return ModelUnavailable(error.reason, error.message, error.retry_after_seconds)


def _fetch_adapter(
    endpoint: str | None, with_token: bool, source: HuggingFaceSource, _: str | None
) -> AdapterAnswer:
    # As above.
    from tonnage.checkpoint.hub.errors import ADAPTER_INPUTS  # noqa: PLC0415 - see above
    from tonnage.checkpoint.hub.reader import (  # noqa: PLC0415 - see above
        HubSettings,
        fetch_adapter,
        saved_token,
    )

    try:
        token = saved_token() if with_token else None
        settings = HubSettings(endpoint=endpoint, inputs=ADAPTER_INPUTS)
        return fetch_adapter(source, token, settings)
    except ModelLookupError as error:
        return ModelUnavailable(error.reason, error.message, error.retry_after_seconds)
