"""A pod template as a patch: what a platform team and a user set on the pods of models.

The models type what the plan reads. All other fields of a pod's spec are kept as they are written;
`workloads.pod.allowed` says which of them may be set.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from tonnage.api.pod import Name, TemplateMetadata, Toleration
from tonnage.api.schema import ApiModel


class PodSpecPatch(ApiModel):
    """Fields of a pod's spec, merged as `kubectl patch --type=strategic` merges them. docs/pods.md
    lists the fields that can be set."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )

    tolerations: Annotated[list[Toleration], Field(max_length=32)] | None = None
    """Tolerations in addition to those of the pool."""
    priority_class_name: Name | None = None
    """PriorityClass of the pods. Default: none."""

    @property
    def others(self) -> dict[str, Any]:
        """The fields that the models do not type, as they were written, nulls included."""
        return dict(self.model_extra or {})


class PodTemplate(ApiModel):
    """Labels, annotations and fields of the spec of pods."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the pods."""
    spec: PodSpecPatch = PodSpecPatch()
    """Fields of the spec of the pods, as in a strategic merge patch."""

    def as_written(self) -> dict[str, Any]:
        """The template with the nulls of its patch, for digests."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
