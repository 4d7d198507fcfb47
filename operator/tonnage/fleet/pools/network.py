"""The network between the nodes of a pool: declared, or recognised by the nodes' resources."""

from collections.abc import Mapping

from tonnage.api.names import ACCELERATOR_POOL
from tonnage.api.pod import EnvVar
from tonnage.api.pool import AcceleratorPoolSpec, Interconnect
from tonnage.catalog.interconnects import Network, load_interconnects
from tonnage.fleet.model import NodeNetwork, Pool

_DEFAULT_BYTES_PER_SECOND = 25e9
_DEFAULT_CAPABILITIES = ("IPC_LOCK",)


def network_of(
    declared: AcceleratorPoolSpec | None, offered: Mapping[str, int]
) -> NodeNetwork | None:
    """Return the network that the pool declares; else the first that all nodes offer and that needs
    no declaration; None without either. `offered` counts adapters by resource."""
    if declared is not None and declared.interconnect is not None:
        return _declared_network(declared.interconnect, offered)
    for resource, count in offered.items():
        known = load_interconnects().network_of(resource)
        if known is not None and known.complete:
            return _known_network(known, resource, count)
    return None


def format_how_to_declare(pool: Pool) -> str:
    """Explain how a pool without a network gets one."""
    field = f"spec.interconnect of {ACCELERATOR_POOL} {pool.name}"
    if pool.networks:
        return (
            f"its nodes offer {pool.networks[0]}, which pods can use only with what {field} states"
            " (resource, annotations)"
        )
    return f"state the resource of their RDMA adapters in {field}"


def _known_network(known: Network, resource: str, offered: int) -> NodeNetwork:
    return NodeNetwork(
        resource=resource,
        count=known.count_of(offered),
        bytes_per_second=known.bytes_per_second,
        requests=known.requests,
        capabilities=known.capabilities,
        env=tuple(EnvVar(name=name, value=value) for name, value in known.env.items()),
    )


def _declared_network(stated: Interconnect, offered: Mapping[str, int]) -> NodeNetwork:
    """The stated fields, else what is usual for the resource."""
    known = load_interconnects().network_of(stated.resource)
    usual = (
        _known_network(known, stated.resource, offered.get(stated.resource, 1))
        if known
        else NodeNetwork(
            stated.resource, 1, _DEFAULT_BYTES_PER_SECOND, capabilities=_DEFAULT_CAPABILITIES
        )
    )
    speed, capabilities = stated.gigabytes_per_second_per_gpu, stated.capabilities
    return NodeNetwork(
        resource=stated.resource,
        count=stated.count or usual.count,
        bytes_per_second=usual.bytes_per_second if speed is None else speed * 1e9,
        requests=usual.requests,
        capabilities=usual.capabilities if capabilities is None else tuple(capabilities),
        annotations=stated.annotations,
        env=tuple(stated.env) or usual.env,
        topology_key=stated.topology_key,
    )
