"""What is said of a pool: its status, and the object of a pool that nobody declared."""

from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.conditions import MAX_MESSAGE_BYTES, Reason
from tonnage.api.names import ACCELERATOR_POOL, API_VERSION
from tonnage.api.pool import AcceleratorPoolStatus, GPUCounts
from tonnage.fleet.model import Pool
from tonnage.fleet.pools import DISCOVERED_LABELS

_MAX_UNUSABLE_NODES: Final = 20
_MAX_NODE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class PoolReadiness:
    """The pool's condition Ready before it knows its generation and its time."""

    ready: bool
    reason: Reason
    message: str


def pool_status(pool: Pool) -> AcceleratorPoolStatus:
    """Counts and unusable nodes of a pool, without conditions (they need a clock)."""
    unusable = [
        f"{node.name}: {node.unusable}"[:_MAX_NODE_CHARS]
        for node in pool.nodes
        if node.unusable is not None
    ]
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
        return _not_ready(Reason.NO_NODES, _why_no_nodes(pool))
    if pool.unrecognised is not None:
        return _not_ready(Reason.UNRECOGNISED, pool.unrecognised)
    usable = sum(1 for node in pool.nodes if node.unusable is None)
    if usable == 0:
        first = pool.nodes[0]
        told = f"none of {len(pool.nodes)} nodes is usable ({first.name}: {first.unusable})"
        return _not_ready(Reason.NO_USABLE_NODES, told)
    message = f"{usable} of {len(pool.nodes)} nodes usable, {pool.free} of {pool.total} GPUs free"
    if pool.overlaps:
        message += f"; shares nodes with {', '.join(pool.overlaps)}, which comes first by name"
    return PoolReadiness(True, Reason.POOL_USABLE, message[:MAX_MESSAGE_BYTES])


def discovered_pool_body(pool: Pool) -> dict[str, Any]:
    """The AcceleratorPool to be applied for a discovered pool.

    It shows what was found and selects nothing for anybody: an object with this label is never
    read back as a declared pool. Of a label with several possible values it has one that is there.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": ACCELERATOR_POOL,
        "metadata": {
            "name": pool.name,
            "labels": dict(DISCOVERED_LABELS),
        },
        "spec": {"nodeSelector": {key: values[0] for key, values in pool.node_selector.items()}},
    }


def _why_no_nodes(pool: Pool) -> str:
    if pool.overlaps:
        others = ", ".join(pool.overlaps)
        return f"all nodes with the labels of spec.nodeSelector are in {others}, first by name"
    return "no node has the labels of spec.nodeSelector"


def _not_ready(reason: Reason, message: str) -> PoolReadiness:
    return PoolReadiness(False, reason, message[:MAX_MESSAGE_BYTES])


def _capped(entries: list[str]) -> list[str]:
    if len(entries) <= _MAX_UNUSABLE_NODES:
        return entries
    shown = entries[: _MAX_UNUSABLE_NODES - 1]
    return [*shown, f"and {len(entries) - len(shown)} more nodes"]
