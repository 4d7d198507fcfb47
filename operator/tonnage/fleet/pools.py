"""The cluster's pools with what is free on each node, from one snapshot."""

from collections.abc import Mapping, Sequence
from typing import Final

from tonnage.api.names import LABEL_DISCOVERED, LABEL_MANAGED_BY, MANAGED_BY
from tonnage.api.pod import Toleration
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.exclusion import exclude
from tonnage.fleet.grouping import Group, group_nodes
from tonnage.fleet.model import FleetSnapshot, Node, Pool, PoolNode, Reservation, Taint
from tonnage.fleet.occupancy import after_reservations, outstanding, used_gpus
from tonnage.fleet.recognise import Recogniser, offered
from tonnage.fleet.taints import first_untolerated, is_gpu_node_taint

DISCOVERED_LABELS: Final = {LABEL_DISCOVERED: "true", LABEL_MANAGED_BY: MANAGED_BY}
"""Labels of the AcceleratorPool that stands for nodes no declared pool selects."""

_ARCHITECTURE: Final = "kubernetes.io/arch"
_USUAL: Final = ("amd64",)


def build_pools(
    snapshot: FleetSnapshot,
    catalog: Catalog,
    excluding: tuple[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
) -> tuple[Pool, ...]:
    """Every pool, declared ones first, each by name. Every GPU node is in exactly one.

    `excluding` is an owner whose pods and reservations are left out, so that a new plan for it may
    use the GPUs it has. `tolerations` are those of the pods to be placed, beside the pool's own:
    a node with any other taint is no capacity.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    pods = [pod for pod in snapshot.pods if excluding is None or pod.owner != excluding]
    wanted = [
        found for found in snapshot.reservations if excluding is None or found.owner != excluding
    ]
    groups = group_nodes(
        [nodes[name] for name in sorted(nodes)], snapshot.declared_pools, Recogniser(catalog)
    )
    pool_of = {node.name: group.name for group in groups for node in group.nodes}
    used, exclusions = used_gpus(pods), exclude(groups)
    waiting = outstanding(wanted, pods, pool_of)
    return tuple(
        _build_pool(group, exclusions[group.name], used, waiting.get(group.name, ()), tolerations)
        for group in groups
    )


def _build_pool(
    group: Group,
    exclusion: dict[str, tuple[str, ...]],
    used: Mapping[tuple[str, str], int],
    waiting: Sequence[Reservation],
    tolerations: Sequence[Toleration],
) -> Pool:
    tolerated = [*(group.declared.spec.tolerations if group.declared else ()), *tolerations]
    unusable = {node.name: _why_unusable(node, group, tolerated) for node in group.nodes}
    usable = {
        node.name: 0 if unusable[node.name] else node.allocatable.get(group.resource, 0)
        for node in group.nodes
    }
    unbound = {
        name: max(0, count - used.get((name, group.resource), 0)) for name, count in usable.items()
    }
    free = after_reservations(unbound, waiting)
    return Pool(
        name=group.name,
        accelerator=group.accelerator,
        device_bytes=_device_bytes(group),
        resource=group.resource,
        nodes=tuple(
            PoolNode(
                name=node.name,
                gpus=offered(node, group.resource),
                allocatable=usable[node.name],
                free=free[node.name],
                unusable=unusable[node.name],
            )
            for node in group.nodes
        ),
        node_selector=dict(group.node_selector),
        taints=_gpu_node_taints(group.nodes),
        declared=group.declared.spec if group.declared else None,
        labels=dict(group.declared.labels if group.declared else DISCOVERED_LABELS),
        unrecognised=group.unrecognised,
        node_exclusion=exclusion,
        overlaps=group.overlaps,
    )


def _why_unusable(node: Node, group: Group, tolerated: Sequence[Toleration]) -> str | None:
    """Why the node is no capacity for this pool now, in a few words."""
    if node.unusable is not None:
        return node.unusable
    if node.name in group.unplannable:
        return group.unplannable[node.name]
    count = offered(node, group.resource)
    if count == 0:
        return "offers no GPUs (is the device plugin running?)"
    if node.allocatable.get(group.resource, 0) == 0:
        return f"none of its {count} GPUs is allocatable"
    architecture = _other_architecture(node, group)
    if architecture is not None:
        return f"no vLLM image runs this accelerator on {architecture}"
    taint = first_untolerated(node.taints, tolerated)
    if taint is not None:
        return f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
    return None


def _other_architecture(node: Node, group: Group) -> str | None:
    """The processor's architecture when there is no image for it: the accelerator's catalogue
    entry names another one than usual (GB200: arm64), else images are built for amd64."""
    matches_of_card = group.accelerator.matches if group.accelerator else ()
    named = [match.values for match in matches_of_card if match.label == _ARCHITECTURE]
    found = node.labels.get(_ARCHITECTURE)
    return found if found is not None and found not in (named or [_USUAL])[0] else None


def _device_bytes(group: Group) -> int | None:
    if group.accelerator is None:
        return None
    if group.virtual_function:
        return group.accelerator.memory_bytes_vf
    return group.accelerator.memory_bytes


def _gpu_node_taints(nodes: Sequence[Node]) -> tuple[Taint, ...]:
    found = {taint for node in nodes for taint in node.taints if is_gpu_node_taint(taint)}
    return tuple(sorted(found, key=lambda taint: (taint.key, taint.value, taint.effect)))
