"""What the reconcile loop asks of a kind of workload, which runs the replicas of one placement.

A workload is the object as the API server has it, or as it is to be applied. A kind reads and
changes it without changing the original. Its `template` is that of the pods which serve requests,
one for each replica; a kind derives the templates of a replica's other pods from it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tonnage.api.inference import Rollout
from tonnage.engines.inputs import Owner, SurgeMode
from tonnage.engines.replica import Replica
from tonnage.kube.protocol import Kind, Object


@dataclass(frozen=True, slots=True)
class Rendering:
    """What every kind renders a workload from.

    `deadline_seconds` is how long its replicas may show no progress, `placement_digest` a digest of
    the inputs of the placement, which the next reconcile reads back.
    """

    replica: Replica
    replicas: int
    surge: SurgeMode
    deadline_seconds: int
    placement_digest: str

    @property
    def owner(self) -> Owner:
        """The InferenceDeployment that the workload belongs to."""
        return self.replica.owner

    @property
    def rollout(self) -> Rollout:
        """How the user wants pods to be replaced."""
        return self.replica.spec.rollout


@dataclass(frozen=True, slots=True)
class ServingPods:
    """The pods of a workload that serve requests, except those that are being deleted: how many
    there are, how many of them have the current template, how many are ready, of all and of those
    with the current template, and when the oldest was created, None where there are none."""

    existing: int
    updated: int
    ready: int
    updated_ready: int
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """The progress of a workload.

    `existing`, `ready` and `updated` count replicas, the last those of the current template.
    `observed`: its controller has observed that template. `completed`: all replicas have once
    served from it, or there was none; `has_served`: there were some. `overdue`: they have made no
    progress for longer than the deadline, None where its controller does not say that. `refused` is
    why the API server rejects new pods, None where it does not.
    """

    existing: int
    ready: int
    updated: int
    observed: bool
    completed: bool
    has_served: bool
    overdue: bool | None = None
    refused: str | None = None


class WorkloadKind(Protocol):
    """A kind of workload. Methods with a body are those of a kind that runs one pod a replica."""

    kind: Kind
    """The kind of the objects."""

    def name(self, owner: str, placement: str) -> str:
        """The name of the workload of a placement: deterministic, so that a crash never creates it
        twice."""
        ...

    def render(self, rendering: Rendering) -> Object:
        """Render the workload."""
        ...

    def template(self, body: Object) -> Object:
        """The pod template as it was rendered: without what a controller adds."""
        ...

    def template_name(self, body: Object) -> str | None:
        """What names the template on the pods; None where only the controller knows it."""
        return None

    def with_template(self, body: Object, template: Object) -> Object:
        """The workload with another template."""
        ...

    def with_templates_of(self, body: Object, source: Object) -> Object:
        """The workload with the templates of another one, as they are: no pod of that one would be
        replaced."""
        ...

    def selector(self, body: Object) -> Mapping[str, str]:
        """The labels that all pods of the workload have, and no pods of another one."""
        ...

    def pods_per_replica(self, body: Object) -> int:
        """The pods of a replica."""
        return 1

    def pod_labels(self, body: Object) -> tuple[Mapping[str, str], ...]:
        """The labels of pods of each template."""
        ...

    def revisions(self, body: Object) -> tuple[Kind, Mapping[str, str]]:
        """The kind and the labels of the objects that keep the earlier templates of a workload."""
        ...

    def at_revision(self, body: Object, revision: Object) -> Object | None:
        """The workload with the templates of such an object, and with the operator's annotations as
        far as it keeps them; None where its content is not readable."""
        ...

    def replicas_to_keep(self, body: Object, ready: Collection[str], count: int) -> int:
        """The number of replicas to request for `count` ones, so that no more of the ready ones
        stop than necessary. `ready` are the pods that serve for them. As many, where the controller
        stops pods that are not ready first."""
        return count

    def can_surge(self, body: Object) -> bool:
        """Whether the controller of a live workload is known to begin a surge."""
        return True

    def surge_mode(self, body: Object, rollout: Rollout) -> SurgeMode | None:
        """How pods are replaced; None where another client set that."""
        ...

    def with_surge_mode(self, body: Object, mode: SurgeMode, rollout: Rollout) -> Object:
        """The workload with another way to replace pods."""
        ...

    def is_paused(self, body: Object) -> bool:
        """Whether no pod is replaced, whatever the template."""
        ...

    def with_pause(self, body: Object, *, paused: bool) -> Object:
        """The workload so that no pod is replaced, or so that a rollout goes on."""
        ...

    def deadline_seconds(self, body: Object) -> int | None:
        """The progress deadline; None where it has none."""
        ...

    def with_deadline(self, body: Object, seconds: int) -> Object:
        """The workload with another progress deadline."""
        ...

    def rendered_spec(self, body: Object) -> Object:
        """The fields of a live workload's spec that `render` sets, without a pause."""
        ...

    def without_template(self, body: Object) -> Object:
        """The workload without pod templates."""
        ...

    def read_state(
        self, body: Object, pods: ServingPods | None, *, is_observed: bool
    ) -> WorkloadState:
        """Read the progress. `pods` are None where they are unknown. `is_observed`: the controller
        has observed the generation of the workload."""
        ...


def without_label(template: Object, label: str) -> Object:
    """A pod template without what names it, which has been added to its labels."""
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if key in ("labels", "annotations")
    }
    labels = metadata.get("labels") or {}
    metadata["labels"] = {key: value for key, value in labels.items() if key != label}
    return {"metadata": metadata, "spec": template.get("spec") or {}}


def with_spec(body: Object, **fields: Any) -> Object:
    """The workload with other values of these fields of its spec."""
    return {**body, "spec": {**body["spec"], **fields}}
