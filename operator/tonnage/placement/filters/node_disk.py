"""The disk that the nodes of a pool have for weights."""

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.messages import GIB
from tonnage.fleet.model import Pool
from tonnage.fleet.nodes.amounts import read_capacity
from tonnage.placement.model import Rejection
from tonnage.placement.reasons import RejectedReason


def find_missing_disk(
    spec: InferenceDeploymentSpec, checkpoint: Checkpoint, pool: Pool
) -> Rejection | None:
    """Reject a pool whose nodes keep no weights, or have less disk for them than the model takes;
    None where the spec does not ask for it. A model of unknown size may fit."""
    if not spec.model.is_on_node_disk:
        return None
    disk = pool.node_disk
    if disk is None:
        message = (
            "its nodes keep no weights, which spec.model.cache.nodeDisk asks for; declare"
            " spec.weights.nodeDisk in the AcceleratorPool, or use another cache"
        )
        return Rejection(RejectedReason.NO_NODE_DISK, message)
    capacity, needed = read_capacity(disk), checkpoint.weights_bytes or 0
    if needed <= capacity:
        return None
    message = (
        f"the model takes {needed / GIB:.1f} GiB of disk, and its nodes have"
        f" {capacity / GIB:.1f} GiB for weights; raise spec.weights.nodeDisk.capacity of the"
        " AcceleratorPool, or use another cache"
    )
    return Rejection(RejectedReason.INSUFFICIENT_RESOURCES, message)
