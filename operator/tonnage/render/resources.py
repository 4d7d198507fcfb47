"""What one replica asks of its node."""

import math
from typing import Any

from tonnage.api.pod import ResourceLists
from tonnage.render.defaults import defaults
from tonnage.render.errors import ResourceError
from tonnage.render.quantity import amount, canonical, gibibytes
from tonnage.render.replica import Replica


def resources(replica: Replica) -> dict[str, dict[str, Any]]:
    """Requests and limits of the vLLM container.

    GPUs are ours alone. CPU and memory are requested by the formula in the catalogue's render.yaml
    unless the user says something about them; a limit without a request is a request as well.
    """
    given = replica.spec.template.spec.resources
    requests: dict[str, str] = {name: canonical(text) for name, text in given.requests.items()}
    limits: dict[str, str] = {name: canonical(text) for name, text in given.limits.items()}
    computed = {
        name: quantity
        for name, quantity in _computed(replica.gpus, replica.model_gib).items()
        if name not in requests and name not in limits
    }
    devices = {replica.option.pool.resource: str(replica.gpus)}
    return {"requests": {**computed, **requests, **devices}, "limits": {**limits, **devices}}


def check_resources(given: ResourceLists) -> None:
    """Refuse requests above their limits. Raises ResourceError."""
    for name, limit in given.limits.items():
        request = given.requests.get(name, limit)
        if amount(request) > amount(limit):
            raise ResourceError(f"spec.template.spec.resources.requests.{name}", request, limit)


def _computed(gpus: int, model_gib: int) -> dict[str, str]:
    formula = defaults().resources
    memory_gib = (
        formula.base_memory_gib
        + gpus * formula.memory_per_gpu_gib
        + model_gib * formula.memory_share_of_weights
    )
    return {
        "cpu": str(formula.base_cpu + gpus * formula.cpu_per_gpu),
        "memory": gibibytes(math.ceil(memory_gib)),
    }
