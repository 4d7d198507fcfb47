"""CPU, memory and ephemeral storage of nodes: what keeps replicas off nodes that have free GPUs."""

from collections.abc import Callable, Sequence
from typing import Final

from tonnage.fit.messages import format_count
from tonnage.fleet.pool_nodes import PoolNode
from tonnage.fleet.resources import Resources
from tonnage.placement.model import Option
from tonnage.placement.namespace import format_amount


def find_node_shortage(option: Option, container: str) -> str | None:
    """Explain what the nodes of an option's pool lack for one of its replicas, where they have the
    GPUs; None where GPUs are lacking, or nothing is.

    The text names the node that has the most of what is lacking. `container` is that of the engine.
    """
    footprint, others = option.parallelism.footprint, option.others
    gpus = footprint.gpus_per_node
    if option.pool.nodes.counts.nodes_with(gpus) < footprint.nodes:
        return None  # listing thousands of nodes takes 20 ms
    nodes = [node for node in option.pool.nodes if node.unusable is None and node.free >= gpus]
    fitting = sum(node.count_pods(footprint, others) > 0 for node in nodes)
    if fitting >= footprint.nodes:
        return None
    name, node = _nearest(nodes, others)
    return (
        f"a replica requests {_format(name, others)}, and of the nodes with"
        f" {format_count(gpus, 'free GPU')} {node.name} comes nearest with"
        f" {_format_left(name, node)}; lower resources.requests.{name} of the container"
        f" {container} in spec.podTemplate, or add larger nodes"
    )


def _nearest(nodes: Sequence[PoolNode], others: Resources) -> tuple[str, PoolNode]:
    """Return what all nodes lack, with the node that has the most of it; where the nodes lack
    different resources, the node that lacks the fewest, with the first of these."""
    lacking = {node.name: _lacking(node, others) for node in nodes}
    for name, amount in _AMOUNTS.items():
        if all(name in names for names in lacking.values()):
            return name, max(nodes, key=lambda node: (amount(node.spare), node.name))
    nearest = min(nodes, key=lambda node: (len(lacking[node.name]), node.name))
    return lacking[nearest.name][0], nearest


def _lacking(node: PoolNode, others: Resources) -> list[str]:
    return [name for name, amount in _AMOUNTS.items() if amount(node.spare) < amount(others)]


_AMOUNTS: Final[dict[str, Callable[[Resources], int]]] = {
    "memory": lambda resources: resources.memory,
    "cpu": lambda resources: resources.cpu,
    "ephemeral-storage": lambda resources: resources.storage,
}
"""The amount of each resource, by its name in a pod spec."""


def _format_left(name: str, node: PoolNode) -> str:
    size, spare = _format(name, node.size), _format(name, node.spare)
    return size if node.spare == node.size else f"{spare} left of {size}"


def _format(name: str, resources: Resources) -> str:
    return format_amount(name, _AMOUNTS[name](resources))
