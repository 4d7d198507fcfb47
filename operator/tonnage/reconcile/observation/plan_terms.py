"""The terms of a plan, by which its replicas run, with their hash as its name; and the plan that
served last, by the status and in the cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.api.names import ANNOTATION_TEMPLATE, VLLM_CONTAINER
from tonnage.api.status import LastReadyPlan
from tonnage.api.text import digest
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Object
from tonnage.placement.report import read_parallelism
from tonnage.reconcile.observation.children import ChildDeployment, is_controlled_by
from tonnage.reconcile.observation.previous import read_reported
from tonnage.reconcile.observation.template_record import as_rendered, template_of
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


def read_terms(pool: str, accelerator: str, parallelism: Parallelism, template: Object) -> Terms:
    """The terms by which pods of this template run in that pool."""
    pod = template["spec"]
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


def read_last_ready(status: Mapping[str, Any]) -> LastReadyPlan | None:
    """The plan that served last, by a status."""
    return read_reported(LastReadyPlan, status.get("lastReadyPlan"))


def is_running(last: LastReadyPlan, deployment: ChildDeployment) -> bool:
    """Whether the Deployment has the template of the plan that served last, unedited."""
    return deployment.template == last.template and _has_terms(last, deployment.child.body)


def needs_revisions(status: Mapping[str, Any], deployments: Iterable[ChildDeployment]) -> bool:
    """Whether the template that served last has to be searched for among old ReplicaSets: by this
    status plans have failed since, and no Deployment has it."""
    if not status.get("failedPlans"):
        return False
    last = read_last_ready(status)
    return last is not None and not any(is_running(last, deployment) for deployment in deployments)


def find_revision(
    last: LastReadyPlan, live: ChildDeployment, revisions: Iterable[Object]
) -> Object | None:
    """The ReplicaSet of the Deployment that has the template of the plan; None where none has it.

    The Deployment controller copies the operator's annotations to it. A ReplicaSet that comes from
    a user's edit of the Deployment has them too, so its terms are compared as well.
    """
    return next(
        (
            revision
            for revision in revisions
            if (revision["metadata"].get("annotations") or {}).get(ANNOTATION_TEMPLATE)
            == last.template
            and is_controlled_by(revision, live.child.uid)
            and _has_terms(last, revision)
        ),
        None,
    )


def _has_terms(last: LastReadyPlan, body: Object) -> bool:
    placement = last.placement
    parallelism = read_parallelism(placement)
    terms = read_terms(
        placement.pool, placement.accelerator, parallelism, template_of(as_rendered(body))
    )
    return terms.hash == last.hash
