"""Changing the spec of one InferenceDeployment, as the person who runs the command.

What is decided is decided by the object as it was read; where it has changed by the time of the
write, nothing is written.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.api.parse import InvalidSpecError, parse_model, parse_spec
from tonnage.api.status import InferenceDeploymentStatus, reported_status
from tonnage.cli.errors import InputError
from tonnage.cli.live_cluster import add_cluster_arguments, namespace_of, open_editor
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import ApiError, ConflictError, NotFoundError, Object
from tonnage.reconcile.key import Key

KIND_WORDS: Final = ("infd", "inferencedeployment", "inferencedeployments")
"""What kubectl calls the kind."""

GITOPS: Final = """\
Where a GitOps tool applies the object, it takes such a change back: write the field in Git instead.
"""

Decide = Callable[["Found"], Mapping[str, Any]]
"""The fields of the spec to be merged, by what was found. Raises InputError to change nothing."""


class Found:
    """One InferenceDeployment as it was read."""

    def __init__(self, key: Key, body: Object) -> None:
        """Raises InputError where the object is not what this version of the program knows."""
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
    """The object, where it lives, and how to reach the cluster."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", metavar="NAME", help="an InferenceDeployment (NAME or infd/NAME)")
    parser.add_argument("-n", "--namespace", help="its namespace (default: that of the context)")
    add_cluster_arguments(parser)


def change_spec(options: argparse.Namespace, decide: Decide) -> Found:
    """Change the spec as decided; returns the object as it was before. Raises InputError."""
    return asyncio.run(_change(options, decide))


async def _change(options: argparse.Namespace, decide: Decide) -> Found:
    key = Key(namespace_of(options), _plain_name(options.name))
    async with open_editor(options) as editor:
        try:
            body = await editor.get(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
            found = Found(key, body)
            await editor.change(INFERENCE_DEPLOYMENTS, body, decide(found))
        except NotFoundError:
            raise InputError(f"{INFERENCE_DEPLOYMENT} {key} not found") from None
        except ConflictError:
            raise InputError(
                f"{key} has changed while it was read, and nothing was written; run it again"
            ) from None
        except ApiError as error:
            raise InputError(f"{key} was not changed: {error}") from None
    return found


def _plain_name(asked: str) -> str:
    """The name of NAME or infd/NAME. Raises InputError."""
    kind, slash, name = asked.rpartition("/")
    if slash and kind.lower().partition(".")[0] not in KIND_WORDS:
        raise InputError(f"{asked}: {kind!r} is no {INFERENCE_DEPLOYMENT}; give NAME or infd/NAME")
    if not name:
        raise InputError(f"{asked!r} has no name; give NAME or infd/NAME")
    return name
