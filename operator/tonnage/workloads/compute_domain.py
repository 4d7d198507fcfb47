"""Renders the ComputeDomain of a placement on several nodes, whose GPUs then share memory over
multi-node NVLink.

The DRA driver of NVIDIA makes a ResourceClaimTemplate from it, here of the same name. Each pod that
claims from that has a channel, and its node is in the domain: the domain follows the pods to other
nodes. A domain over several NVLink cliques is one group of daemons in each, so that all replicas of
a placement can be in one. Source: kubernetes-sigs/dra-driver-nvidia-gpu, v25.8.0 to v0.4.1.
"""

from typing import Any, Final

from tonnage.engines.inputs import Owner
from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.kube.kinds import COMPUTE_DOMAINS
from tonnage.placement.model import Option
from tonnage.workloads.metadata import owner_reference, placement_labels
from tonnage.workloads.names import compute_domain_name

CHANNEL: Final = "nvlink-channel"
"""Name of the claim in the pod."""

Json = dict[str, Any]


def render_compute_domain(owner: Owner, option: Option) -> Json | None:
    """The ComputeDomain of the placement; None where its pods claim no channel."""
    return render_domain(owner, option.placement_name) if claims_channel(option) else None


def render_domain(owner: Owner, placement: str) -> Json:
    """The ComputeDomain of a placement whose pods claim a channel. Its spec is immutable."""
    name = compute_domain_name(owner.name, placement)
    return {
        "apiVersion": f"{COMPUTE_DOMAINS.group}/{COMPUTE_DOMAINS.version}",
        "kind": COMPUTE_DOMAINS.kind,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": placement_labels(owner, placement),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            # Any number of nodes: pods start once the daemon of their own node is ready, and the
            # engine waits for all of its ranks before they share memory. Required up to v25.12.
            "numNodes": 0,
            "channel": {"resourceClaimTemplate": {"name": name}},
        },
    }


def compute_domain_of(owner: Owner, option: Option) -> str | None:
    """The name of the ComputeDomain of the placement, and of the ResourceClaimTemplate of its
    channels; None where its pods claim no channel."""
    if not claims_channel(option):
        return None
    return compute_domain_name(owner.name, option.placement_name)


def claims_channel(option: Option) -> bool:
    """Whether pods of the option claim a channel of a ComputeDomain: those on several nodes, since
    a node has one channel."""
    network = option.pool.network
    return option.parallelism.nodes > 1 and network is not None and network.compute_domain


def has_channel(template: Json) -> bool:
    """Whether pods of this template claim a channel of a ComputeDomain."""
    claims = map(as_mapping, as_sequence(as_mapping(template.get("spec")).get("resourceClaims")))
    return any(claim.get("name") == CHANNEL for claim in claims)
