"""Reads a live cluster as kubectl does.

The client of Kubernetes is imported when a command connects: a command that reads files must not
wait for it.
"""

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY, owner_of
from tonnage.cli.sources.documents import Document
from tonnage.cli.sources.dump import GROUP_KINDS
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
)
from tonnage.kube.protocol import (
    ClusterReader,
    ForbiddenError,
    Kind,
    KindMissingError,
    ListWatch,
    Object,
    ObjectParts,
    Selection,
)

SOURCE: Final = "the cluster"
"""Names the source in messages, in place of a file name."""

DEFAULT_NAMESPACE: Final = "default"


class LiveReader(ClusterReader, ListWatch, Protocol):
    """Reads a live cluster, also page by page."""


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of kubectl to reach the cluster."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file (default: as kubectl finds it)"
    )
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )


@asynccontextmanager
async def open_cluster(options: argparse.Namespace) -> AsyncIterator[LiveReader]:
    """A read-only client. Raises InputError, also for API errors while it is used: a refused read
    is no bug of the program."""
    from tonnage.cli.sources.cluster_client import open_reader  # noqa: PLC0415 - see the module's text

    async with open_reader(options) as api:
        yield api


def namespace_of(options: argparse.Namespace) -> str:
    """The namespace of the flag, else that of the context.

    Raises InputError.
    """
    if options.namespace is not None:
        return str(options.namespace)
    from tonnage.cli.sources import cluster_client  # noqa: PLC0415 - see the module's text

    return cluster_client.read_context_namespace(options) or DEFAULT_NAMESPACE


async def read_cluster(api: LiveReader) -> list[Document]:
    """Read all objects that the operator reads. Raises ApiError."""
    managed = {LABEL_MANAGED_BY: MANAGED_BY}
    bodies = [
        *await api.list(NODES),
        *await _list_relevant_pods(api),
        *await api.list(ACCELERATOR_POOLS),
        *await api.list(INFERENCE_DEPLOYMENTS),
        *await api.list(DEPLOYMENTS, labels=managed),
        *await _list_if_served(api, LEADER_WORKER_SETS, managed),
        *await _list_if_served(api, RESOURCE_SLICES),
        *await _list_if_served(api, RESOURCE_CLAIMS),
        *await _list_if_served(api, DEVICE_CLASSES),
        *await _list_if_served(api, RESOURCE_CLAIM_TEMPLATES, managed),
        *await _list_if_served(api, COMPUTE_DOMAINS, managed),
        *await _list_if_allowed(api, JOBS, managed),
        *await api.list(SERVICES, labels=managed),
        *await _list_if_allowed(api, POD_DISRUPTION_BUDGETS),
        *await _list_if_allowed(api, RESOURCE_QUOTAS),
        *await _list_if_allowed(api, LIMIT_RANGES),
        *await _list_if_allowed(api, NAMESPACES),
        *await _list_if_allowed(api, PRIORITY_CLASSES),
    ]
    return [Document(SOURCE, body) for body in bodies]


async def find_group_kinds(api: LiveReader) -> frozenset[Kind]:
    """The kinds for replicas on several nodes that the cluster has and the user may list. Raises
    ApiError."""
    served = set()
    for kind in GROUP_KINDS:
        with suppress(KindMissingError, ForbiddenError):
            await api.list(kind, labels={LABEL_MANAGED_BY: MANAGED_BY})
            served.add(kind)
    return frozenset(served)


async def _list_if_served(
    api: LiveReader, kind: Kind, labels: Mapping[str, str] | None = None
) -> list[Object]:
    """The objects of a kind; empty if the cluster lacks it, or forbidden."""
    try:
        return await api.list(kind, labels=labels)
    except (KindMissingError, ForbiddenError):
        return []


async def _list_if_allowed(
    api: LiveReader, kind: Kind, labels: Mapping[str, str] | None = None
) -> list[Object]:
    """The objects of a kind; empty if forbidden, as in the operator."""
    try:
        return await api.list(kind, labels=labels)
    except ForbiddenError:
        return []


async def _list_relevant_pods(api: LiveReader) -> list[Object]:
    pods: list[Object] = []

    def keep_relevant(pod: Object) -> None:
        if _is_relevant(pod):
            pods.append(pod)

    await api.list_pages(Selection(PODS), ObjectParts.FULL, keep_relevant)
    return pods


def _is_relevant(pod: Object) -> bool:
    """Whether the pod holds or waits for GPUs, belongs to an InferenceDeployment, or downloads for
    one."""
    labels = pod["metadata"].get("labels") or {}
    is_managed = labels.get(LABEL_MANAGED_BY) == MANAGED_BY
    return is_managed or bool(owner_of(labels)) or read_gpu_pod(pod) is not None
