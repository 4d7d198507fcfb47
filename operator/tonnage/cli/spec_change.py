"""Changes the spec of one InferenceDeployment with the credentials of the user.

The change depends on the object as it was read. If the object has changed by the time of the write,
the command writes nothing.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import INFERENCE_DEPLOYMENT, INFERENCE_DEPLOYMENT_WORDS
from tonnage.api.parse import InvalidSpecError, parse_model, parse_spec
from tonnage.api.status import InferenceDeploymentStatus, reported_status
from tonnage.cli.errors import InputError
from tonnage.cli.sources.cluster_client import open_editor
from tonnage.cli.sources.live_cluster import (
    add_cluster_arguments,
    namespace_of,
)
from tonnage.cli.sources.namespaces import add_namespace_argument
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import ApiError, ConflictError, NotFoundError, Object
from tonnage.reconcile.key import Key

GITOPS: Final = """\
If a GitOps tool applies the object, it reverts such a change: write the field in Git instead.
"""

MakePatch = Callable[["LiveObject"], Mapping[str, Any]]
"""Returns the fields to merge into the spec. Raises InputError to change nothing."""


class LiveObject:
    """One InferenceDeployment as it was read."""

    def __init__(self, key: Key, body: Object) -> None:
        """Raises InputError if this version of the program cannot parse the object."""
        self.key = key
        self.body = body
        try:
            self.spec: InferenceDeploymentSpec = parse_spec(body.get("spec"))
            self.status: InferenceDeploymentStatus = parse_model(
                InferenceDeploymentStatus, reported_status(body), "status"
            )
        except InvalidSpecError as error:
            raise InputError(f"{key} cannot be read: {error}") from None

    @property
    def generation(self) -> int:
        """The generation of the spec."""
        return int(self.body["metadata"]["generation"])


def add_object_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the object, its namespace, and the flags to reach the cluster."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", metavar="NAME", help="an InferenceDeployment (NAME or infd/NAME)")
    add_namespace_argument(parser)
    add_cluster_arguments(parser)


def change_spec(options: argparse.Namespace, make_patch: MakePatch) -> LiveObject:
    """Merge the patch into the spec; return the object before the change. Raises InputError."""
    return asyncio.run(_change(options, make_patch))


async def _change(options: argparse.Namespace, make_patch: MakePatch) -> LiveObject:
    key = Key(namespace_of(options), _parse_name(options.name))
    async with open_editor(options) as editor:
        try:
            body = await editor.get(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
            live = LiveObject(key, body)
            await editor.change(INFERENCE_DEPLOYMENTS, body, make_patch(live))
        except NotFoundError:
            raise InputError(f"{INFERENCE_DEPLOYMENT} {key} not found") from None
        except ConflictError:
            raise InputError(
                f"{key} has changed while it was read, and nothing was written; run it again"
            ) from None
        except ApiError as error:
            raise InputError(f"{key} was not changed: {error}") from None
    return live


def _parse_name(argument: str) -> str:
    """The NAME of `NAME` or `infd/NAME`. Raises InputError."""
    kind, slash, name = argument.rpartition("/")
    if slash and kind.lower().partition(".")[0] not in INFERENCE_DEPLOYMENT_WORDS:
        raise InputError(
            f"{argument}: {kind!r} is no {INFERENCE_DEPLOYMENT}; give NAME or infd/NAME"
        )
    if not name:
        raise InputError(f"{argument!r} has no name; give NAME or infd/NAME")
    return name
