"""Connects to a live cluster as kubectl does, reads it, and changes specs with the user's
credentials."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from tonnage.api.names import LABEL_MANAGED_BY, LABEL_OWNER, MANAGED_BY
from tonnage.cli.errors import InputError
from tonnage.cli.sources.documents import Document
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.client import AioKubeApi
from tonnage.kube.connection import ConnectionConfigError, connect, context_namespace
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from tonnage.kube.protocol import ApiError, ForbiddenError, Kind, Object, ObjectParts, Selection
from tonnage.kube.single_fields import SpecEditor
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Request, Transport

SOURCE: Final = "the cluster"
"""Names the source in messages, in place of a file name."""

DEFAULT_NAMESPACE: Final = "default"

_REQUESTS_PER_SECOND: Final = 50.0
_REQUESTS_AT_ONCE: Final = 300
"""The limits of kubectl's client."""


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of kubectl to reach the cluster."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file (default: as kubectl finds it)"
    )
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )


@asynccontextmanager
async def open_cluster(options: argparse.Namespace) -> AsyncIterator[AioKubeApi]:
    """A read-only client. Raises InputError, also for API errors while it is used: a refused read
    is no bug of the program."""
    try:
        async with connect(options.kubeconfig, options.context) as connection:
            yield AioKubeApi(
                Transport(connection.client, _ignore_request),
                before_write=_refuse_to_write,
                bucket=TokenBucket(_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE),
            )
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None
    except ApiError as error:
        raise InputError(f"the cluster cannot be read: {error}") from None


@asynccontextmanager
async def open_editor(options: argparse.Namespace) -> AsyncIterator[SpecEditor]:
    """A client that changes specs with the user's credentials. Raises InputError if it cannot
    connect, and ApiError while it is used."""
    try:
        async with connect(options.kubeconfig, options.context) as connection:
            yield SpecEditor(Transport(connection.client, _ignore_request))
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None


def namespace_of(options: argparse.Namespace) -> str:
    """The namespace of the flag, else that of the context.

    Raises InputError.
    """
    if options.namespace is not None:
        return str(options.namespace)
    try:
        return context_namespace(options.kubeconfig, options.context) or DEFAULT_NAMESPACE
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None


async def read_cluster(api: AioKubeApi) -> list[Document]:
    """Read all objects that the operator reads. Raises ApiError."""
    managed = {LABEL_MANAGED_BY: MANAGED_BY}
    bodies = [
        *await api.list(NODES),
        *await _list_relevant_pods(api),
        *await api.list(ACCELERATOR_POOLS),
        *await api.list(INFERENCE_DEPLOYMENTS),
        *await api.list(DEPLOYMENTS, labels=managed),
        *await api.list(SERVICES, labels=managed),
        *await _list_if_allowed(api, PRIORITY_CLASSES),
    ]
    return [Document(SOURCE, body) for body in bodies]


async def _list_if_allowed(api: AioKubeApi, kind: Kind) -> list[Object]:
    """The objects of a kind; empty if forbidden, as in the operator."""
    try:
        return await api.list(kind)
    except ForbiddenError:
        return []


async def _list_relevant_pods(api: AioKubeApi) -> list[Object]:
    pods: list[Object] = []

    def keep_relevant(pod: Object) -> None:
        if _is_relevant(pod):
            pods.append(pod)

    await api.list_pages(Selection(PODS), ObjectParts.FULL, keep_relevant)
    return pods


def _is_relevant(pod: Object) -> bool:
    """Whether the pod holds or waits for GPUs, or belongs to an InferenceDeployment."""
    return read_gpu_pod(pod) is not None or LABEL_OWNER in (pod["metadata"].get("labels") or {})


def _ignore_request(request: Request, code: str, seconds: float) -> None:
    """Record no metric: a command exposes none."""


def _refuse_to_write() -> NoReturn:
    raise AssertionError("the command line writes nothing to a cluster")
