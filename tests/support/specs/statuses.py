"""Statuses of InferenceDeployments, as few fields of them as a test needs."""

from typing import Any

from tonnage.api.status import InferenceDeploymentStatus

MEMORY = dict.fromkeys(
    (
        "deviceGiB",
        "budgetGiB",
        "weightsGiB",
        "activationGiB",
        "nonTorchGiB",
        "graphGiB",
        "kvCacheGiB",
        "uncertaintyGiB",
    ),
    1.0,
)


def status(**fields: Any) -> InferenceDeploymentStatus:
    return InferenceDeploymentStatus.model_validate(fields)


def conditions(at: str = "2026-01-01T00:00:00Z", **statuses: str) -> list[dict[str, Any]]:
    """`Placed="False/DoesNotFit"` and so on."""
    return [
        {
            "type": kind,
            "status": value.partition("/")[0],
            "reason": value.partition("/")[2] or "Valid",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": at,
        }
        for kind, value in statuses.items()
    ]


def placement(accelerator: str, replicas: int = 2, **fields: Any) -> dict[str, Any]:
    return {
        "name": accelerator,
        "pool": accelerator,
        "accelerator": accelerator,
        "tensorParallelSize": 1,
        "pipelineParallelSize": 1,
        "gpusPerReplica": 1,
        "replicas": replicas,
        "readyReplicas": 1,
        "image": "vllm",
        "reason": "LowestCost",
        "message": "",
        "memory": MEMORY,
        "kvCacheTokens": 1000,
        **fields,
    }


def scaling(wanted: int) -> dict[str, Any]:
    """What a load asks for."""
    return {
        "wantedReplicas": wanted,
        "recommendedReplicas": wanted,
        "reason": "LoadMeasured",
        "message": "",
    }
