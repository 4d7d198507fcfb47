"""What the operator reports of a pool: its status, and the object of a discovered pool."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.conditions import MAX_MESSAGE_BYTES, Reason
from tonnage.api.names import ACCELERATOR_POOL, API_VERSION
from tonnage.api.pool import AcceleratorPoolStatus, GPUCounts
from tonnage.fit.messages import format_count
from tonnage.fleet.model import Pool

_MAX_UNUSABLE_NODES: Final = 20
_MAX_NODE_CHARS: Final = 200
_MAX_NAMED_POOLS: Final = 5


@dataclass(frozen=True, slots=True)
class PoolReadiness:
    """The pool's condition Ready, without generation and time."""

    ready: bool
    reason: Reason
    message: str


def pool_status(pool: Pool) -> AcceleratorPoolStatus:
    """Counts and unusable nodes of a pool, without conditions (they need a clock)."""
    unusable = [f"{node.name}: {node.unusable}"[:_MAX_NODE_CHARS] for node in pool.nodes.unusable()]
    return AcceleratorPoolStatus(
        accelerator=pool.accelerator.id if pool.accelerator else None,
        nodes=len(pool.nodes),
        gpus=GPUCounts(
            total=pool.total,
            allocatable=pool.allocatable,
            free=pool.free,
            largest_free_block=pool.largest_free_block,
        ),
        unusable_nodes=_capped(unusable),
    )


def pool_readiness(pool: Pool) -> PoolReadiness:
    """Whether anything can be placed on the pool, and why not."""
    if not pool.nodes:
        return _not_ready(Reason.NO_NODES, f"{format_no_nodes(pool)}{_format_growth(pool)}")
    if pool.unrecognised is not None:
        return _not_ready(Reason.UNRECOGNISED, pool.unrecognised)
    usable, unusable = pool.nodes.counts.usable, format_unusable(pool)
    if usable == 0:
        message = f"none of {format_count(len(pool.nodes), 'node')} is usable ({unusable})"
        starting = format_starting(pool)
        message += f"; {starting}" if starting else ""
        return _not_ready(Reason.NO_USABLE_NODES, message)
    message = f"{usable} of {len(pool.nodes)} nodes usable, {pool.free} of {pool.total} GPUs free"
    message += f" ({unusable})" if unusable else ""
    message += f"{_format_overlaps(pool)}{_format_notes(pool)}"
    return PoolReadiness(True, Reason.POOL_USABLE, message[:MAX_MESSAGE_BYTES])


def format_unusable(pool: Pool) -> str:
    """Name the first node that is no capacity now, why, and how many others there are; empty where
    there is none."""
    unusable = pool.nodes.unusable()
    if not unusable:
        return ""
    first, others = unusable[0], len(unusable) - 1
    return f"{first.name}: {first.unusable}" + (f", and {others} more" if others else "")


def format_starting(pool: Pool) -> str:
    """Count the nodes that are starting, and name the first with what it lacks; empty where there
    is none."""
    starting = [node for node in pool.nodes.unusable() if node.starting]
    if not starting:
        return ""
    count = "1 node that is starting" if len(starting) == 1 else f"{len(starting)} starting nodes"
    return f"{count} ({starting[0].name}: {starting[0].unusable})"


def format_no_nodes(pool: Pool) -> str:
    """Explain that the pool has no node and, where no node can come either, which fields of the
    AcceleratorPool let a node autoscaler add some."""
    message, declared = _why_no_nodes(pool), pool.declared
    if pool.largest_node or (declared is None and not pool.growth):
        return message
    if pool.accelerator is None and declared is not None and declared.accelerator is not None:
        return f"{message}; {pool.unrecognised}"
    nodes = "node that may come" if pool.growth == 1 else f"{pool.growth} nodes that may come"
    of_pool = f"of {ACCELERATOR_POOL} {pool.name}"
    if pool.growth and pool.accelerator is not None:
        return f"{message}; the number of GPUs of the {nodes} is not known until one exists"
    if pool.growth:
        return f"{message}; set spec.accelerator {of_pool}: the GPUs of the {nodes} are not known"
    fields = "spec.maxNodes" if pool.accelerator else "spec.maxNodes and spec.accelerator"
    return f"{message}; where a node autoscaler adds nodes, set {fields} {of_pool}"


def discovered_pool_body(pool: Pool) -> dict[str, Any]:
    """Render the AcceleratorPool to be applied for a discovered pool.

    The object only informs: with its label, the operator never reads it back as a declared pool.
    Of a label with several possible values it has one that exists.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": ACCELERATOR_POOL,
        "metadata": {
            "name": pool.name,
            "labels": dict(pool.labels),
        },
        "spec": {"nodeSelector": {key: values[0] for key, values in pool.node_selector.items()}},
    }


def _format_notes(pool: Pool) -> str:
    """Format the first note on the nodes, and how many others there are."""
    others = len(pool.notes) - 1
    more = f" (and {others} more)" if others > 0 else ""
    return f"; {pool.notes[0]}{more}" if pool.notes else ""


def _why_no_nodes(pool: Pool) -> str:
    if pool.overlaps:
        others = ", ".join(pool.overlaps)
        return f"all nodes with the labels of spec.nodeSelector are in {others}, first by name"
    return "no node has the labels of spec.nodeSelector"


def _format_overlaps(pool: Pool) -> str:
    """Name declared pools that select the same nodes, and the pool that owns these."""
    text = ""
    if pool.overlaps:
        text += f"; {_listed(pool.overlaps)}, first by name, has nodes that this pool selects too"
    if pool.overlapped:
        text += f"; first by name, it has nodes that {_listed(pool.overlapped)} selects too"
    return text


def _format_growth(pool: Pool) -> str:
    """Format the nodes that an autoscaler may add to a pool without nodes."""
    if not pool.growth or not pool.largest_node:
        return ""
    return f"; up to {pool.growth} nodes with {pool.largest_node} GPUs may come"


def _listed(names: Sequence[str]) -> str:
    """List the first names, and how many others there are."""
    shown = ", ".join(names[:_MAX_NAMED_POOLS])
    others = len(names) - _MAX_NAMED_POOLS
    return f"{shown} (and {others} more)" if others > 0 else shown


def _not_ready(reason: Reason, message: str) -> PoolReadiness:
    return PoolReadiness(False, reason, message[:MAX_MESSAGE_BYTES])


def _capped(entries: list[str]) -> list[str]:
    if len(entries) <= _MAX_UNUSABLE_NODES:
        return entries
    shown = entries[: _MAX_UNUSABLE_NODES - 1]
    return [*shown, f"and {len(entries) - len(shown)} more nodes"]
