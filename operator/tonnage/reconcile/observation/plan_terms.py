"""The terms of a plan, by which its replicas run, and their hash as the plan's name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tonnage.api.status import PlacementStatus
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.children import vllm_container
from tonnage.reconcile.observation.digests import digest
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
                "image": self.image,
                "command": self.command,
                "arguments": self.arguments,
                "claim": self.claim,
            }
        )


def read_terms(pool: str, accelerator: str, parallelism: Parallelism, deployment: Object) -> Terms:
    """The terms by which a Deployment (or a ReplicaSet of one) runs its pods in that pool."""
    pod = deployment["spec"].get("template", {}).get("spec", {})
    container = vllm_container(pod)
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


def as_requested(terms: Terms, reported: PlacementStatus | None) -> Terms:
    """The terms of a Deployment as the operator requested them: admission may have replaced the
    image, which the status reports."""
    if reported is None or reported.requested_image is None or terms.image != reported.image:
        return terms
    return replace(terms, image=reported.requested_image)


def _find_named(items: list[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any]:
    return next((item for item in items or [] if item.get("name") == name), {})
