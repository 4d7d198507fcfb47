"""The terms of a plan, by which its replicas run, and their hash as the plan's name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.api.names import VLLM_CONTAINER
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.digests import digest
from tonnage.workloads.metadata import nodes_entry
from tonnage.workloads.pod.volumes import MODEL_VOLUME


@dataclass(frozen=True, slots=True)
class Terms:
    """What defines a replica: its pool, its image, its command line, the volume of its model.

    Not part of it: the number of replicas, the time of a restart, and pod fields that change
    neither what is served nor its cost (labels, environment, probes, CPU).
    """

    pool: str
    accelerator: str
    parallelism: Parallelism
    image: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    claim: str | None

    @property
    def hash(self) -> str:
        """The name by which the plan is approved; equal terms have equal hashes everywhere."""
        return digest(
            {
                "pool": self.pool,
                "accelerator": self.accelerator,
                "tensorParallelSize": self.parallelism.tensor,
                "pipelineParallelSize": self.parallelism.pipeline,
                **nodes_entry(self.parallelism),
                "image": self.image,
                "command": self.command,
                "arguments": self.arguments,
                "claim": self.claim,
            }
        )


def read_terms(pool: str, accelerator: str, parallelism: Parallelism, deployment: Object) -> Terms:
    """The terms by which a Deployment (or a ReplicaSet of one) runs its pods in that pool."""
    pod = deployment["spec"].get("template", {}).get("spec", {})
    container = _find_named(pod.get("containers"), VLLM_CONTAINER)
    claim = _find_named(pod.get("volumes"), MODEL_VOLUME).get("persistentVolumeClaim") or {}
    return Terms(
        pool=pool,
        accelerator=accelerator,
        parallelism=parallelism,
        image=container.get("image", ""),
        command=tuple(container.get("command") or ()),
        arguments=tuple(container.get("args") or ()),
        claim=claim.get("claimName"),
    )


def _find_named(items: list[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any]:
    return next((item for item in items or [] if item.get("name") == name), {})
