"""A cluster that is running, as kubectl reaches it: read, and where a person asks for it, changed
with that person's credentials."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from tonnage.api.names import LABEL_MANAGED_BY, LABEL_OWNER, MANAGED_BY
from tonnage.cli.documents import Document
from tonnage.cli.errors import InputError
from tonnage.fleet.pod import read_gpu_pod
from tonnage.kube.client import AioKubeApi
from tonnage.kube.connection import ConnectionConfigError, connect, context_namespace
from tonnage.kube.edit import SpecEditor
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from tonnage.kube.protocol import ApiError, ForbiddenError, Kind, Object, Parts, Selection
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Request, Transport

SOURCE: Final = "the cluster"
"""What stands in messages where for a file its name does."""

DEFAULT_NAMESPACE: Final = "default"

_REQUESTS_PER_SECOND: Final = 50.0
_REQUESTS_AT_ONCE: Final = 300
"""As kubectl's own client limits itself."""


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """How to reach the cluster; the flags are kubectl's."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file (default: as kubectl finds it)"
    )
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )


@asynccontextmanager
async def open_cluster(options: argparse.Namespace) -> AsyncIterator[AioKubeApi]:
    """A client that only reads. Raises InputError, also for whatever goes wrong while it is used:
    nothing that a reader is denied is a defect of the program."""
    try:
        async with connect(options.kubeconfig, options.context) as connection:
            yield AioKubeApi(
                Transport(connection.client, _ignore),
                before_write=_refuse_to_write,
                bucket=TokenBucket(_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE),
            )
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None
    except ApiError as error:
        raise InputError(f"the cluster cannot be read: {error}") from None


@asynccontextmanager
async def open_editor(options: argparse.Namespace) -> AsyncIterator[SpecEditor]:
    """A client that changes specs as whoever runs the command. Raises InputError where there is no
    way to the cluster, and ApiError while it is used."""
    try:
        async with connect(options.kubeconfig, options.context) as connection:
            yield SpecEditor(Transport(connection.client, _ignore))
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None


def namespace_of(options: argparse.Namespace) -> str:
    """The namespace that the user means: the flag, else that of the context.

    Raises InputError.
    """
    if options.namespace is not None:
        return str(options.namespace)
    try:
        return context_namespace(options.kubeconfig, options.context) or DEFAULT_NAMESPACE
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None


async def read_cluster(api: AioKubeApi) -> list[Document]:
    """All of the cluster that the operator looks at. Raises ApiError."""
    ours = {LABEL_MANAGED_BY: MANAGED_BY}
    found = [
        *await api.list(NODES),
        *await _pods_that_matter(api),
        *await api.list(ACCELERATOR_POOLS),
        *await api.list(INFERENCE_DEPLOYMENTS),
        *await api.list(DEPLOYMENTS, labels=ours),
        *await api.list(SERVICES, labels=ours),
        *await _list_if_allowed(api, PRIORITY_CLASSES),
    ]
    return [Document(SOURCE, body) for body in found]


async def _list_if_allowed(api: AioKubeApi, kind: Kind) -> list[Object]:
    """What the operator, too, goes without where it may not read it."""
    try:
        return await api.list(kind)
    except ForbiddenError:
        return []


async def _pods_that_matter(api: AioKubeApi) -> list[Object]:
    found: list[Object] = []

    def note(pod: Object) -> None:
        if _matters(pod):
            found.append(pod)

    await api.each(Selection(PODS), Parts.FULL, note)
    return found


def _matters(pod: Object) -> bool:
    """Whether the pod holds or waits for GPUs, or is one of ours."""
    return read_gpu_pod(pod) is not None or LABEL_OWNER in (pod["metadata"].get("labels") or {})


def _ignore(request: Request, code: str, seconds: float) -> None:
    """Nobody counts the requests of a command."""


def _refuse_to_write() -> NoReturn:
    raise AssertionError("the command line writes nothing to a cluster")
