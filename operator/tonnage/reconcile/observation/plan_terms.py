"""The terms of a plan, by which its replicas run, with their hash as its name; and the plan that
served last, by the status and in the cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.api.status import LastReadyPlan
from tonnage.api.text import digest
from tonnage.engines.registry import engine_container
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Object
from tonnage.placement.report import read_parallelism
from tonnage.reconcile.observation.children import ChildDeployment, is_controlled_by
from tonnage.reconcile.observation.previous import read_reported
from tonnage.reconcile.observation.template_record import as_rendered, template_of
from tonnage.workloads.metadata import optional_entries
from tonnage.workloads.pod.volumes import MODEL_VOLUME
from tonnage.workloads.registry import workload_kind_of


@dataclass(frozen=True, slots=True)
class Terms:
    """What defines a replica: its pool, its image, its command line, the volume of its model.

    `claim` is the claim, the OCI image, or the directory of the nodes, that has the model.

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
                **optional_entries(self.parallelism),
                "image": self.image,
                "command": self.command,
                "arguments": self.arguments,
                "claim": self.claim,
            }
        )


def read_terms(pool: str, accelerator: str, parallelism: Parallelism, template: Object) -> Terms:
    """The terms by which pods of this template run in that pool."""
    pod = template["spec"]
    container = engine_container(pod) or {}
    volume = _find_named(pod.get("volumes"), MODEL_VOLUME)
    claim, model_image = volume.get("persistentVolumeClaim") or {}, volume.get("image") or {}
    directory = volume.get("hostPath") or {}
    return Terms(
        pool=pool,
        accelerator=accelerator,
        parallelism=parallelism,
        image=container.get("image", ""),
        command=tuple(container.get("command") or ()),
        arguments=tuple(container.get("args") or ()),
        claim=claim.get("claimName") or model_image.get("reference") or directory.get("path"),
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
    """Whether the template that served last has to be searched for among the earlier ones that
    Kubernetes keeps: by this status plans have failed since, and no Deployment has it."""
    if not status.get("failedPlans"):
        return False
    last = read_last_ready(status)
    return last is not None and not any(is_running(last, deployment) for deployment in deployments)


def find_carrier(
    last: LastReadyPlan, deployments: Iterable[ChildDeployment]
) -> ChildDeployment | None:
    """The Deployment of the placement that served last; None where it is gone."""
    return next((one for one in deployments if one.placement == last.placement.name), None)


def find_revision(
    last: LastReadyPlan, live: ChildDeployment, revisions: Iterable[Object]
) -> Object | None:
    """The Deployment as it was with the template of the plan; None where no revision has that.

    The name of the template alone proves nothing: a revision that comes from a user's edit has it,
    too, so its terms are compared as well.
    """
    kind = workload_kind_of(live.child.body)
    owned = (one for one in revisions if is_controlled_by(one, live.child.uid))
    for earlier in (kind.at_revision(live.child.body, one) for one in owned):
        if earlier is None or _template_name(earlier) != last.template:
            continue
        if _has_terms(last, earlier):
            return earlier
    return None


def _template_name(body: Object) -> str | None:
    return (body["metadata"].get("annotations") or {}).get(ANNOTATION_TEMPLATE)


def _has_terms(last: LastReadyPlan, body: Object) -> bool:
    placement = last.placement
    parallelism = read_parallelism(placement)
    terms = read_terms(
        placement.pool, placement.accelerator, parallelism, template_of(as_rendered(body))
    )
    return terms.hash == last.hash
