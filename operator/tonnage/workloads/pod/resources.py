"""Resource requests and limits of a replica."""

import math
from collections.abc import Mapping
from typing import Any

from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import ResourceError
from tonnage.engines.quantity import gibibytes, parse_quantity, read_quantity
from tonnage.engines.registry import engine_for
from tonnage.engines.replica import Replica
from tonnage.workloads.claim_template import CLAIM
from tonnage.workloads.compute_domain import CHANNEL, claims_channel
from tonnage.workloads.pod.disk import NodeDisk


def compute_requests(
    replica: Replica, disk: NodeDisk | None, others: Mapping[str, Any]
) -> dict[str, str]:
    """CPU, memory and disk by the formulas in the catalogue's pod_defaults.yaml, except for those
    of which the `others`, the resources of the patches, have a request, or a limit, which is then
    the request as well."""
    given = {*(others.get("requests") or {}), *(others.get("limits") or {})}
    extra_gib = engine_for(replica.spec).extra_memory_gib(replica)
    requests = _compute_requests(replica.gpus, replica.model_gib, extra_gib, disk)
    return {name: quantity for name, quantity in requests.items() if name not in given}


def with_gpus(resources: Mapping[str, Any], replica: Replica) -> dict[str, Any]:
    """The resources of the engine's container with its GPUs, and its channel to those of other
    nodes, which only the operator sets."""
    channel = [{"name": CHANNEL}] if claims_channel(replica.option) else []
    if replica.option.pool.claim is not None:
        return {**resources, "claims": [{"name": CLAIM}, *channel]}
    devices = {replica.option.pool.resource: str(replica.gpus)}
    return {
        "requests": {**(resources.get("requests") or {}), **devices},
        "limits": {**(resources.get("limits") or {}), **devices},
        **({"claims": channel} if channel else {}),
    }


def check_resources(resources: Mapping[str, Any], path: str) -> None:
    """Refuse requests above their limits. Raises ResourceError."""
    requests = resources.get("requests") or {}
    for name, limit in (resources.get("limits") or {}).items():
        request = requests.get(name, limit)
        if not (read_quantity(request) and read_quantity(limit)):
            continue
        if parse_quantity(str(request)) > parse_quantity(str(limit)):
            raise ResourceError(f"{path}.requests.{name}", str(request), str(limit))


def _compute_requests(
    gpus: int, model_gib: int, extra_gib: int, disk: NodeDisk | None
) -> dict[str, str]:
    formula = load_defaults().resources
    memory_gib = (
        formula.base_memory_gib
        + gpus * formula.memory_per_gpu_gib
        + model_gib * formula.memory_share_of_weights
        + extra_gib
    )
    return {
        "cpu": str(formula.base_cpu + gpus * formula.cpu_per_gpu),
        "memory": gibibytes(math.ceil(memory_gib)),
        **({"ephemeral-storage": gibibytes(disk.request_gib)} if disk else {}),
    }
