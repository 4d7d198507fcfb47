"""Rejects pools by selection and devices, after a check of the names in spec.placement."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.placement import (
    DataParallelPolicy,
    MultiNode,
    MultiNodePolicy,
    PlacementSpec,
    PoolSelector,
)
from tonnage.catalog.accelerator_names import is_named
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError, UnknownRuleError
from tonnage.catalog.interconnects import load_interconnects
from tonnage.catalog.model import Accelerator
from tonnage.fleet.model import Partition, Pool
from tonnage.fleet.pools.report import format_no_nodes, format_unusable
from tonnage.placement.model import Rejection
from tonnage.placement.reasons import RejectedReason

_ONE_NODE: Final = MultiNode(max_nodes=1)
_DEFAULT_LIMITS: Final = MultiNode()

_UNSUPPORTED: Final = "UnsupportedAccelerator"
"""The compatibility rule for devices that no image supports."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a pool that placement can plan on: `largest_node` is their number on the
    largest node, usable now or not. `partition` is what a device is where it is not a whole GPU.

    A replica takes at most `max_nodes` nodes, several only where one is not enough, unless
    `prefers_one_node` is false. `node_bytes_per_second` is what one GPU sends to another node,
    over TCP without `has_interconnect`. `data_parallel`: GPUs of a replica can have whole attention
    layers and share the experts. `tensor_over_nodes`: a tensor-parallel group can span nodes.
    """

    accelerator: Accelerator
    device_bytes: int
    largest_node: int
    partition: Partition | None = None
    max_nodes: int = 1
    prefers_one_node: bool = True
    node_bytes_per_second: float | None = None
    has_interconnect: bool = False
    data_parallel: bool = True
    tensor_over_nodes: bool = False

    @property
    def most_per_node(self) -> int:
        """Most devices of one replica on one node: a partition cannot be part of a group."""
        return self.largest_node if self.partition is None else 1


def screen_pool(placement: PlacementSpec, pool: Pool) -> Devices | Rejection:
    """Return the pool's devices, or the first reason to reject it."""
    devices = _check_selection(placement, pool) or _plannable_devices(placement, pool)
    if isinstance(devices, Rejection) or devices.partition is not None:
        return devices
    devices = replace(
        devices, data_parallel=placement.data_parallel is not DataParallelPolicy.NEVER
    )
    limits, tcp = _limits_of(placement), load_interconnects().tcp_bytes_per_second
    if pool.network is None and not limits.allow_tcp:
        return devices
    return replace(
        devices,
        max_nodes=_most_nodes(limits, pool),
        prefers_one_node=not isinstance(placement.multi_node, MultiNode),
        node_bytes_per_second=pool.network.bytes_per_second if pool.network else tcp,
        has_interconnect=pool.network is not None,
        tensor_over_nodes=pool.network is not None and limits.tensor_parallel,
    )


def if_connected(placement: PlacementSpec, pool: Pool, devices: Devices) -> Devices | None:
    """The devices of a pool without a network as if it had one; None where that changes nothing."""
    most = _most_nodes(_limits_of(placement), pool)
    if pool.network is not None or devices.max_nodes > 1 or devices.partition or most == 1:
        return None
    tcp = load_interconnects().tcp_bytes_per_second
    return replace(devices, max_nodes=most, node_bytes_per_second=tcp)


def _limits_of(placement: PlacementSpec) -> MultiNode:
    match placement.multi_node:
        case MultiNodePolicy.NEVER:
            return _ONE_NODE
        case MultiNodePolicy.AUTO | None:
            return _DEFAULT_LIMITS
        case limits:
            return limits


def _most_nodes(limits: MultiNode, pool: Pool) -> int:
    """Most nodes of one replica: no more than the pool can have as large ones of."""
    return max(1, min(limits.max_nodes, pool.total // pool.largest_node + pool.growth))


def _check_selection(placement: PlacementSpec, pool: Pool) -> Rejection | None:
    if placement.pool_selector is not None:
        for key, value in placement.pool_selector.match_labels.items():
            if pool.labels.get(key) != value:
                message = f"spec.placement.poolSelector asks for label {key}={value}"
                return Rejection(RejectedReason.NOT_SELECTED, message)
    allowed, accelerator = placement.accelerators, pool.accelerator
    if (
        allowed is not None
        and accelerator is not None
        and not any(is_named(accelerator, name) for name in allowed)
    ):
        message = f"{accelerator.id} is not in spec.placement.accelerators ({', '.join(allowed)})"
        return Rejection(RejectedReason.NOT_ALLOWED, message)
    return None


def _plannable_devices(placement: PlacementSpec, pool: Pool) -> Devices | Rejection:
    if pool.refused is not None:
        return Rejection(RejectedReason.INVALID_POD_TEMPLATE, pool.refused)
    if not pool.nodes and not pool.largest_node:
        return Rejection(RejectedReason.NO_USABLE_NODES, format_no_nodes(pool))
    if pool.accelerator is None:
        return Rejection(RejectedReason.UNRECOGNISED, pool.unrecognised or "not recognised")
    if not pool.accelerator.supported and _UNSUPPORTED not in placement.allow:
        reason = pool.accelerator.unsupported_reason or "not supported by vLLM"
        return Rejection(RejectedReason.UNSUPPORTED, f"{pool.accelerator.id}: {reason}")
    device_bytes = pool.partition.device_bytes if pool.partition else pool.device_bytes
    if device_bytes is None:
        message = f"the memory that {pool.accelerator.id} shows to vLLM is not known"
        return Rejection(RejectedReason.UNSUPPORTED, message)
    if pool.largest_node == 0:
        unusable = format_unusable(pool)
        message = f"none of its {len(pool.nodes)} nodes offers GPUs ({unusable})"
        return Rejection(RejectedReason.NO_USABLE_NODES, message)
    return Devices(pool.accelerator, device_bytes, pool.largest_node, pool.partition)


def pin(placement: PlacementSpec, pool: Pool, pools: Iterable[Pool]) -> PlacementSpec:
    """Return a placement that only this pool satisfies, as far as accelerator and labels differ.

    Among pools of the same accelerator it uses one label that no other pool has, else all labels of
    the pool.
    """
    assert pool.accelerator is not None, "placement chooses recognised pools only"
    pinned = placement.model_copy(update={"accelerators": [pool.accelerator.id]})
    rivals = [
        other
        for other in pools
        if other.name != pool.name
        and other.accelerator is not None
        and other.accelerator.id == pool.accelerator.id
    ]
    if not rivals:
        return pinned
    match_labels = placement.pool_selector.match_labels if placement.pool_selector else {}
    selector = PoolSelector(match_labels={**match_labels, **_distinguish(pool, rivals)})
    return pinned.model_copy(update={"pool_selector": selector})


def _distinguish(pool: Pool, rivals: Iterable[Pool]) -> dict[str, str]:
    others = list(rivals)
    for key, value in sorted(pool.labels.items()):
        if all(other.labels.get(key) != value for other in others):
            return {key: value}
    return dict(pool.labels)


def check_accelerators(spec: InferenceDeploymentSpec, catalog: Catalog) -> None:
    """Raise UnknownAcceleratorError for the first unknown name in the allow-list."""
    for position, name in enumerate(spec.placement.accelerators or ()):
        try:
            catalog.accelerators_named(name)
        except UnknownAcceleratorError as error:
            where = f"spec.placement.accelerators[{position}]"
            raise UnknownAcceleratorError(f"{where}: {error}") from None


def check_allowed_rules(spec: InferenceDeploymentSpec, catalog: Catalog) -> None:
    """Raise UnknownRuleError for the first name in `allow` that is not a compatibility rule."""
    for position, name in enumerate(spec.placement.allow):
        try:
            catalog.rule(name)
        except UnknownRuleError as error:
            raise UnknownRuleError(f"spec.placement.allow[{position}]: {error}") from None
