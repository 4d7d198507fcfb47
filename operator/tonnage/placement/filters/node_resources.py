"""CPU, memory and ephemeral storage of nodes: what keeps replicas off nodes that have the GPUs."""

from collections.abc import Callable, Sequence
from typing import Final

from tonnage.fleet.pool_nodes import PoolNode
from tonnage.fleet.resources import UNKNOWN, Resources
from tonnage.placement.messages import GIB, format_devices
from tonnage.placement.model import Option

_CORE: Final = 1000


def find_node_shortage(option: Option) -> str | None:
    """Explain what the nodes of an option's pool lack for one more of its replicas, where they have
    the GPUs; None where GPUs are lacking.

    The text names the node that has the most of what is lacking.
    """
    gpus = option.requests.gpus
    nodes = [node for node in option.pool.nodes if node.unusable is None and node.free >= gpus]
    if not nodes or any(node.available.covers(option.requests) for node in nodes):
        return None
    where = "no node has" if len(nodes) == option.pool.nodes.counts.usable else _no_node(option)
    for name, amount, form in _KINDS:
        needed = amount(option.others)
        best = max(nodes, key=lambda node: (amount(node.spare), node.name))
        if amount(best.spare) < needed:
            return f"{where} {form(needed)}{name} free: {_format_node(best, name, amount, form)}"
    return f"{where} {_format_needs(option.others)} free at once{_format_closest(nodes, option)}"


def _no_node(option: Option) -> str:
    return f"no node with {format_devices(option.pool, option.requests.gpus, 'free ')} has"


def _format_closest(nodes: Sequence[PoolNode], option: Option) -> str:
    """Name the node that lacks the fewest kinds, and the first one that it lacks."""

    def lacking(node: PoolNode) -> list[str]:
        return [
            _format_node(node, name, amount, form)
            for name, amount, form in _KINDS
            if amount(node.spare) < amount(option.others)
        ]

    closest = min(nodes, key=lambda node: (len(lacking(node)), node.name))
    return f": {lacking(closest)[0]}"


def _format_needs(others: Resources) -> str:
    return ", ".join(
        f"{form(amount(others))}{name}" for name, amount, form in _KINDS if amount(others)
    )


def _format_node(
    node: PoolNode, name: str, amount: Callable[[Resources], int], form: Callable[[int], str]
) -> str:
    size = amount(node.size)
    of_size = "" if size >= UNKNOWN else f" of {form(size)}"
    return f"{node.name} has {form(amount(node.spare))}{of_size}{name}"


def _cpu(resources: Resources) -> int:
    return resources.cpu


def _memory(resources: Resources) -> int:
    return resources.memory


def _storage(resources: Resources) -> int:
    return resources.storage


def format_cores(thousandths: int) -> str:
    """Format CPU as cores, with as many decimals as it has."""
    return f"{thousandths / _CORE:g} CPU"


def format_whole_gib(size_bytes: int) -> str:
    """Format bytes as whole GiB with a separator of thousands, below one GiB as MiB."""
    if 0 < size_bytes < GIB:
        return f"{size_bytes // 1024**2} MiB"
    return f"{size_bytes // GIB:,} GiB"


_KINDS: Final = (
    (" of memory", _memory, format_whole_gib),
    ("", _cpu, format_cores),
    (" of ephemeral storage", _storage, format_whole_gib),
)
"""Each kind with its name, its amount and its format."""
