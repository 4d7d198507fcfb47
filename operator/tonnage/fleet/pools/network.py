"""The network between the nodes of a pool: declared, or recognised by the nodes' resources."""

from collections.abc import Mapping
from dataclasses import replace

from tonnage.api.names import ACCELERATOR_POOL
from tonnage.api.pod import EnvVar
from tonnage.api.pool import AcceleratorPoolSpec, Interconnect
from tonnage.catalog.interconnects import Domain, Network, load_interconnects
from tonnage.catalog.model import Accelerator
from tonnage.fleet.model import NodeNetwork, Pool

_DEFAULT_BYTES_PER_SECOND = 25e9
_DEFAULT_CAPABILITIES = ("IPC_LOCK",)


def network_of(
    declared: AcceleratorPoolSpec | None,
    offered: Mapping[str, int],
    domain_label: str | None = None,
    accelerator: Accelerator | None = None,
) -> NodeNetwork | None:
    """Return the network that the pool declares; else the first that all nodes offer and that needs
    no declaration; None without either. `offered` counts adapters by resource. `domain_label` is
    the label by which all nodes name their NVLink domain, which a replica does not leave unless the
    pool declares another topology. A declared ComputeDomain is no network without a topology:
    across domains there is no NVLink."""
    network = _find_network(declared, offered, accelerator)
    if network is None:
        return None
    network = replace(network, topology_key=network.topology_key or domain_label)
    if network.compute_domain and network.topology_key is None:
        return None
    label = domain_label or network.topology_key
    if network.compute_domain:  # it has NVLink domains, whatever label names them
        (label, *_) = load_interconnects().domain_labels
    domain = load_interconnects().domain_of(label)
    return network if domain is None else _in_domain(network, domain, declared)


def _in_domain(
    network: NodeNetwork, domain: Domain, declared: AcceleratorPoolSpec | None
) -> NodeNetwork:
    """The network of pods on nodes of NVLink domains, which have channels or not. What the pool
    states stays: its nodes may give pods channels in another way."""
    stated = {variable.name for variable in (*network.env, *(declared.env if declared else ()))}
    env = domain.env_with_channel if network.compute_domain else domain.env_without_channel
    missing = (EnvVar(name=key, value=each) for key, each in env.items() if key not in stated)
    return replace(network, env=(*network.env, *missing))


def _find_network(
    declared: AcceleratorPoolSpec | None,
    offered: Mapping[str, int],
    accelerator: Accelerator | None,
) -> NodeNetwork | None:
    if declared is not None and declared.interconnect is not None:
        return _declared_network(declared.interconnect, offered, accelerator)
    for resource, count in offered.items():
        known = load_interconnects().network_of(resource)
        if known is not None and known.complete:
            return _known_network(known, resource, count)
    return None


def format_how_to_declare(pool: Pool) -> str:
    """Explain how a pool without a network gets one."""
    field = f"spec.interconnect of {ACCELERATOR_POOL} {pool.name}"
    if pool.declared is not None and pool.declared.interconnect is not None:
        (label, *_) = load_interconnects().domain_labels
        return (
            f"computeDomain in {field} needs nodes that all have the label {label}, which NVIDIA's"
            " DRA driver or GPU Feature Discovery sets; without it, state their topologyKey"
        )
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


def _declared_network(
    stated: Interconnect, offered: Mapping[str, int], accelerator: Accelerator | None
) -> NodeNetwork:
    """The stated fields, else what is usual for the resource, and NVLink in a ComputeDomain."""
    usual = _usual_network(stated.resource, offered)
    speed, capabilities = stated.gigabytes_per_second_per_gpu, stated.capabilities
    nvlink = accelerator.link_bandwidth if accelerator and stated.compute_domain else None
    return NodeNetwork(
        resource=stated.resource,
        count=(stated.count or usual.count) if stated.resource else 0,
        bytes_per_second=(nvlink or usual.bytes_per_second) if speed is None else speed * 1e9,
        requests=usual.requests,
        capabilities=usual.capabilities if capabilities is None else tuple(capabilities),
        annotations=stated.annotations,
        env=tuple(stated.env) or usual.env,
        topology_key=stated.topology_key,
        compute_domain=stated.compute_domain,
    )


def _usual_network(resource: str | None, offered: Mapping[str, int]) -> NodeNetwork:
    """What is usual for a resource, and without one."""
    if resource is None:
        return NodeNetwork(None, 0, _DEFAULT_BYTES_PER_SECOND)
    known = load_interconnects().network_of(resource)
    if known is not None:
        return _known_network(known, resource, offered.get(resource, 1))
    return NodeNetwork(resource, 1, _DEFAULT_BYTES_PER_SECOND, capabilities=_DEFAULT_CAPABILITIES)
