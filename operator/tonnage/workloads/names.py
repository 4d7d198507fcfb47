"""Names of children: deterministic, so that a crash never creates a child twice."""

import hashlib
from typing import Final

from tonnage.api.names import MAX_NAME_LENGTH
from tonnage.api.workload import Context
from tonnage.placement.model import Option

_NVLINK: Final = "-nvlink"
_LEADERS: Final = "-leaders"
_DIGEST_LENGTH: Final = 8
_POOL_DIGEST_LENGTH: Final = 5

_MAX_LEADER_WORKER_SET_NAME: Final = 39
"""Kueue's limit, as of Kueue 0.16; the controller alone would take a few more."""


def secondary_placement_name(option: Option) -> str:
    """Name of a placement on a further pool of an accelerator already in use."""
    digest = hashlib.sha256(option.pool.name.encode()).hexdigest()[:_POOL_DIGEST_LENGTH]
    return f"{option.placement_name}-{digest}"


def deployment_name(owner_name: str, placement: str) -> str:
    """Name of the Deployment of one placement: "<owner>-<placement>", at most 63 characters."""
    return _join(owner_name, placement, MAX_NAME_LENGTH)


def leader_worker_set_name(owner_name: str, placement: str) -> str:
    """Name of the LeaderWorkerSet of one placement: "<owner>-<placement>", short enough for the
    names that its controller and Kueue make of it."""
    return _join(owner_name, placement, _MAX_LEADER_WORKER_SET_NAME)


def _join(owner_name: str, placement: str, length: int) -> str:
    """Join both names. A longer name is cut and ends in a digest of both, so that long names with
    the same start differ."""
    name = f"{owner_name}-{placement}"
    if len(name) <= length:
        return name
    digest = hashlib.sha256(f"{owner_name}/{placement}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: length - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


def _with_digest(owner_name: str, name: str, digest: str) -> str:
    suffix = digest[:_DIGEST_LENGTH]
    return f"{_join(owner_name, name, MAX_NAME_LENGTH - len(suffix) - 1)}-{suffix}"


def claim_template_name(owner_name: str, placement: str, digest: str) -> str:
    """Name of the ResourceClaimTemplate of one placement, with a digest of its spec."""
    return _with_digest(owner_name, placement, digest)


def compute_domain_name(owner_name: str, placement: str) -> str:
    """Name of the ComputeDomain of one placement. It differs from that of a ResourceClaimTemplate
    of the operator, which ends in a digest: the one of the channels has it, too."""
    return f"{_join(owner_name, placement, MAX_NAME_LENGTH - len(_NVLINK))}{_NVLINK}"


def weights_job_name(owner_name: str, digest: str) -> str:
    """Name of the Job that downloads a checkpoint, with a digest of what it downloads and where
    to."""
    return _with_digest(owner_name, "weights", digest)


def prefetch_job_name(owner_name: str, digest: str) -> str:
    """Name of the Job that downloads a checkpoint to the disk of a node, with a digest of what it
    downloads and where to."""
    return _with_digest(owner_name, "prefetch", digest)


def long_endpoint_name(owner_name: str) -> str:
    """Name of the InferenceDeployment that serves the owner's long requests, and of its Service."""
    return deployment_name(owner_name, Context.LONG)


def inference_pool_name(owner_name: str) -> str:
    """Name of the InferencePool over all placements: the owner's, like that of the Service."""
    return owner_name


def disruption_budget_name(owner_name: str) -> str:
    """Name of the PodDisruptionBudget over all placements: the owner's, like the Service's."""
    return owner_name


def placement_service_name(owner_name: str, placement: str, nodes: int) -> str:
    """Name of the Service of one of several placements, whose replicas are on so many nodes each:
    that of its Deployment. A LeaderWorkerSet has a headless Service of its own name, by which the
    pods of a group find their leader."""
    if nodes == 1:
        return deployment_name(owner_name, placement)
    return f"{leader_worker_set_name(owner_name, placement)}{_LEADERS}"


def service_name(owner_name: str) -> str:
    """Name of the Service over all placements: the owner's, which the CRD limits to a DNS label."""
    return owner_name
