"""Renders the Job that downloads a checkpoint to the disk of one node, before a replica is there.

Its pod is that of the Job for a claim (`weights_job`), with the directory of the namespace on the
node in place of the claim. It is bound to the node by its affinity, so that kube-scheduler counts
what it requests: little CPU and memory, and no GPU. It has not the priority of the replicas: no
pod that runs there has to leave for it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.names import ANNOTATION_PREFETCH_NODE
from tonnage.api.text import digest
from tonnage.engines.defaults import load_defaults
from tonnage.engines.replica import Replica
from tonnage.workloads.names import prefetch_job_name
from tonnage.workloads.pod.volumes import node_volume
from tonnage.workloads.pod.weights import (
    disk_environment,
    program,
    render_download_environment,
)
from tonnage.workloads.weights_job import render_download_job

Json = dict[str, Any]

_NODE_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}")


def prefetch_node_of(job: Mapping[str, Any]) -> str | None:
    """The node that a Job prefetches to; None of one that does not, or names no node."""
    annotations = job["metadata"].get("annotations") or {}
    node = annotations.get(ANNOTATION_PREFETCH_NODE)
    return node if isinstance(node, str) and _NODE_NAME.fullmatch(node) else None


def wanted_prefetch_job(replica: Replica, node: str) -> str:
    """The name of the Job for a node. It follows from what is downloaded and where to, so that a
    finished Job is found again."""
    hub = replica.spec.model.source.hugging_face
    assert hub is not None, "a cache without a repository passed validation"
    directory = node_volume(replica)["hostPath"]["path"]
    what = [hub.repo, replica.checkpoint.revision, directory, node]
    return prefetch_job_name(replica.owner.name, digest(what))


def render_prefetch_job(replica: Replica, node: str) -> Json:
    """The Job that brings the checkpoint of the replica, whose spec asks for a disk of the nodes,
    to a node of its pool."""
    container = {
        "command": ["python3", "-c", *map(program, ("prefetch", "node_disk", "download"))],
        "env": render_download_environment(replica, disk_environment(replica)),
        "resources": {"requests": dict(load_defaults().weights_keeper.requests)},
    }
    name = wanted_prefetch_job(replica, node)
    job = render_download_job(replica, name, container, node_volume(replica))
    job["metadata"]["annotations"] = {ANNOTATION_PREFETCH_NODE: node}
    pod = job["spec"]["template"]["spec"]
    pod.pop("priorityClassName", None)
    pod["affinity"] = {"nodeAffinity": _bound_to(pod["affinity"]["nodeAffinity"], node)}
    # Root owns what the kubelet creates on a node.
    pod["containers"][0]["securityContext"] |= {"runAsUser": 0, "runAsNonRoot": False}
    return job


def _bound_to(affinity: Mapping[str, Any], node: str) -> Json:
    """The required part of the affinity, for this node only."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = affinity[required]["nodeSelectorTerms"]
    return {required: {"nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]}}
