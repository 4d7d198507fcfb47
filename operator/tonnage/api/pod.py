"""The fields of a pod template that a user can set.

The models list the allowed fields, not the forbidden ones: no user can set a field that is not here
(hostPath, privileged, hostNetwork, ...). PodTemplate is a patch: its models type what the plan
reads, and keep all other fields of a pod's spec as they are written; `workloads.pod.allowed` says
which of them may be set.
"""

from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, StrictBool, StringConstraints, model_validator

from tonnage.api.schema import STRICT_NUMBER, ApiModel, ExactlyOne

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Quantity = Annotated[
    str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$", max_length=32)
]
StringMap = Annotated[dict[str, str], Field(max_length=64)]


class KeySelector(ApiModel):
    """A key of a Secret or ConfigMap."""

    name: Name
    """Name of the object in the pod's namespace."""
    key: Name
    """Key in the object."""
    optional: StrictBool | None = None
    """Whether the pod can start without the key. Default: false."""


class EnvVarSource(ExactlyOne):
    """Source of the value. Exactly one of the fields must be set."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""


class EnvVar(ApiModel):
    """An environment variable."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!(has(self.value) && has(self.valueFrom))",
                    "message": "set value or valueFrom, not both",
                }
            ]
        }
    )

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=253)]
    """Name of the variable."""
    value: str | None = None
    """Value of the variable. Default: empty."""
    value_from: EnvVarSource | None = None
    """Source of the value, instead of value."""

    @model_validator(mode="after")
    def _check_one_origin(self) -> Self:
        if self.value is not None and self.value_from is not None:
            raise ValueError(f"set value or valueFrom of {self.name}, not both")
        return self


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim as a volume."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    read_only: StrictBool | None = None
    """Whether the volume is read-only. Default: false."""


class SecretVolume(ApiModel):
    """A Secret as files."""

    secret_name: Name
    """Name of the Secret."""


class ConfigMapVolume(ApiModel):
    """A ConfigMap as files."""

    name: Name
    """Name of the ConfigMap."""


class EmptyDirVolume(ApiModel):
    """A temporary directory with the lifetime of the pod."""

    medium: Literal["", "Memory"] | None = None
    """Memory for tmpfs. Default: the disk of the node."""
    size_limit: Quantity | None = None
    """Maximum size. Default: no limit."""


class Volume(ExactlyOne):
    """A volume of the pod. Exactly one source must be set."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the volume, for volumeMounts."""
    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim."""
    secret: SecretVolume | None = None
    """A Secret."""
    config_map: ConfigMapVolume | None = None
    """A ConfigMap."""
    empty_dir: EmptyDirVolume | None = None
    """A temporary directory."""


class VolumeMount(ApiModel):
    """A volume mounted into the vLLM container."""

    name: Name
    """Name of the volume."""
    mount_path: Annotated[str, StringConstraints(pattern=r"^/", max_length=512)]
    """Absolute path in the container."""
    sub_path: str | None = None
    """Path in the volume. Default: the root of the volume."""
    read_only: StrictBool | None = None
    """Whether the mount is read-only. Default: false."""


_EVERY_KEY: Final = "a toleration of every key needs operator Exists"
_NO_VALUE: Final = "operator Exists takes no value"
_NO_EXECUTE: Final = "tolerationSeconds needs effect NoExecute"
# The rules of Kubernetes (pkg/apis/core/validation ValidateTolerations), checked here already:
# otherwise a mistake in a pool would fail every object placed on it.
_EXISTS: Final = "has(self.operator) && self.operator == 'Exists'"
_TOLERATION_RULES: Final = {
    _EVERY_KEY: f"has(self.key) && self.key != '' || {_EXISTS}",
    _NO_VALUE: f"!({_EXISTS} && has(self.value) && self.value != '')",
    _NO_EXECUTE: "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
}


class Toleration(ApiModel):
    """A taint that the pods tolerate."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": rule, "message": message} for message, rule in _TOLERATION_RULES.items()
            ]
        }
    )

    key: Annotated[str, StringConstraints(max_length=317)] | None = None
    """Key of the taint. Default: all keys, with operator Exists."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists or Equal. Default: Equal."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """Value of the taint, with operator Equal. Default: empty."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: all effects."""
    toleration_seconds: Annotated[int, STRICT_NUMBER] | None = None
    """Seconds that a NoExecute taint is tolerated. Default: forever."""

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if not self.key and self.operator != "Exists":
            raise ValueError(_EVERY_KEY)
        if self.operator == "Exists" and self.value:
            raise ValueError(_NO_VALUE)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(_NO_EXECUTE)
        return self


class LocalObjectReference(ApiModel):
    """An object in the namespace of the pod."""

    name: Name
    """Name of the object."""


class ResourceLists(ApiModel):
    """CPU and memory of the vLLM container. The operator sets GPUs."""

    requests: Annotated[dict[Literal["cpu", "memory", "ephemeral-storage"], Quantity], Field()] = {}
    """Resource requests. Default: the limits, or computed from the model size and GPUs."""
    limits: Annotated[dict[Literal["cpu", "memory", "ephemeral-storage"], Quantity], Field()] = {}
    """Resource limits. Default: none."""


class TemplateMetadata(ApiModel):
    """Labels and annotations of the pods."""

    labels: StringMap = {}
    """Additional labels. Keys of tonnage.dev and of GitOps tools are not allowed."""
    annotations: StringMap = {}
    """Additional annotations."""


class TemplateSpec(ApiModel):
    """Additional fields of the pod spec."""

    service_account_name: Name | None = None
    """ServiceAccount of the pods. Its token is not mounted. Default: the default ServiceAccount."""
    priority_class_name: Name | None = None
    """PriorityClass of the pods. Default: none."""
    runtime_class_name: Name | None = None
    """RuntimeClass of the pods. Default: none."""
    image_pull_secrets: Annotated[list[LocalObjectReference], Field(max_length=16)] = []
    """Secrets to pull the image."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Tolerations in addition to those of the pool."""
    resources: ResourceLists = ResourceLists()
    """CPU and memory of the vLLM container."""
    volumes: Annotated[list[Volume], Field(max_length=32)] = []
    """Additional volumes."""
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=32)] = []
    """Additional volume mounts of the vLLM container."""


class PodTemplateOverrides(ApiModel):
    """Additional settings of the pods."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the pods."""
    spec: TemplateSpec = TemplateSpec()
    """Additional fields of the pod spec."""


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

    def without_containers(self, names: Collection[str]) -> Self:
        """The template without what it sets on the containers of these names."""
        containers = self.spec.others.get("containers")
        if not isinstance(containers, list):
            return self
        kept = [
            one
            for one in containers
            if not (isinstance(one, dict) and str(one.get("name")) in names)
        ]
        if len(kept) == len(containers):
            return self
        return self.model_copy(update={"spec": self.spec.model_copy(update={"containers": kept})})

    def as_written(self) -> dict[str, Any]:
        """The template with the nulls of its patch, for digests."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
