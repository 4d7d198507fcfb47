"""Resource requests and limits of a replica."""

import math
from typing import Any

from tonnage.api.pod import ResourceLists
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import ResourceError
from tonnage.engines.quantity import format_canonical, gibibytes, parse_quantity
from tonnage.engines.replica import Replica
from tonnage.workloads.pod.disk import node_disk


def render_resources(replica: Replica) -> dict[str, dict[str, Any]]:
    """Requests and limits of the vLLM container.

    Only the operator sets GPUs. Requests of CPU, memory and disk follow the formulas in the
    catalogue's pod_defaults.yaml, unless the user sets a request, or a limit, which is then the
    request as well.
    """
    user = replica.spec.template.spec.resources
    requests: dict[str, str] = {
        name: format_canonical(text) for name, text in user.requests.items()
    }
    limits: dict[str, str] = {name: format_canonical(text) for name, text in user.limits.items()}
    computed = {
        name: quantity
        for name, quantity in _compute_requests(replica).items()
        if name not in requests and name not in limits
    }
    devices = {replica.option.pool.resource: str(replica.gpus)}
    return {"requests": {**computed, **requests, **devices}, "limits": {**limits, **devices}}


def check_resources(resources: ResourceLists) -> None:
    """Refuse requests above their limits. Raises ResourceError."""
    for name, limit in resources.limits.items():
        request = resources.requests.get(name, limit)
        if parse_quantity(request) > parse_quantity(limit):
            raise ResourceError(f"spec.template.spec.resources.requests.{name}", request, limit)


def _compute_requests(replica: Replica) -> dict[str, str]:
    formula, gpus, disk = load_defaults().resources, replica.gpus, node_disk(replica)
    memory_gib = (
        formula.base_memory_gib
        + gpus * formula.memory_per_gpu_gib
        + replica.model_gib * formula.memory_share_of_weights
    )
    return {
        "cpu": str(formula.base_cpu + gpus * formula.cpu_per_gpu),
        "memory": gibibytes(math.ceil(memory_gib)),
        **({"ephemeral-storage": gibibytes(disk.request_gib)} if disk else {}),
    }
