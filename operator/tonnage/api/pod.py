"""The few fields of a pod template a user may add to.

A list of what is allowed, not of what is forbidden: a field that is not here (hostPath,
privileged, hostNetwork, ...) cannot be smuggled into a pod.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, StrictBool, StringConstraints, model_validator

from tonnage.api.schema import AS_A_NUMBER, ApiModel, ExactlyOne

Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Quantity = Annotated[
    str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$", max_length=32)
]
StringMap = Annotated[dict[str, str], Field(max_length=64)]


class KeySelector(ApiModel):
    """One key of a Secret or ConfigMap."""

    name: Name
    """Name of the object in the pod's namespace."""
    key: Name
    """Key inside the object."""
    optional: StrictBool | None = None
    """Whether the pod starts without it. Default: false."""


class EnvVarSource(ExactlyOne):
    """Where the value of a variable comes from. Exactly one of the fields is set."""

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
    """Its value."""
    value_from: EnvVarSource | None = None
    """Where its value comes from, instead of value."""

    @model_validator(mode="after")
    def _check_one_origin(self) -> Self:
        if self.value is not None and self.value_from is not None:
            raise ValueError(f"set value or valueFrom of {self.name}, not both")
        return self


class ClaimVolume(ApiModel):
    """A volume by its claim."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    read_only: StrictBool | None = None
    """Mount it read-only. Default: false."""


class SecretVolume(ApiModel):
    """A Secret as files."""

    secret_name: Name
    """Name of the Secret."""


class ConfigMapVolume(ApiModel):
    """A ConfigMap as files."""

    name: Name
    """Name of the ConfigMap."""


class EmptyDirVolume(ApiModel):
    """Space that lives as long as the pod."""

    medium: Literal["", "Memory"] | None = None
    """Memory for a tmpfs. Default: the node's disk."""
    size_limit: Quantity | None = None
    """Largest size. Default: no limit."""


class Volume(ExactlyOne):
    """A volume of the pod. Exactly one source is set."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name that volumeMounts refer to."""
    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim."""
    secret: SecretVolume | None = None
    """A Secret."""
    config_map: ConfigMapVolume | None = None
    """A ConfigMap."""
    empty_dir: EmptyDirVolume | None = None
    """Scratch space."""


class VolumeMount(ApiModel):
    """Where a volume appears in the vLLM container."""

    name: Name
    """Name of the volume."""
    mount_path: Annotated[str, StringConstraints(pattern=r"^/", max_length=512)]
    """Path in the container."""
    sub_path: str | None = None
    """Path inside the volume. Default: its root."""
    read_only: StrictBool | None = None
    """Mount it read-only. Default: false."""


_EVERY_KEY: Final = "a toleration of every key needs operator Exists"
_NO_VALUE: Final = "operator Exists takes no value"
_NO_EXECUTE: Final = "tolerationSeconds needs effect NoExecute"
# What no pod may have (Kubernetes pkg/apis/core/validation ValidateTolerations) is refused here
# already: a pool's mistake would else come up in every object that is placed on it.
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
    """Key of the taint. Default: every key."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists or Equal. Default: Equal."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """Value of the taint, for Equal. Default: the empty value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: every effect."""
    toleration_seconds: Annotated[int, AS_A_NUMBER] | None = None
    """How long a NoExecute taint is tolerated. Default: for ever."""

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
    """An object of the pod's namespace by name."""

    name: Name
    """Name of the object."""


class ResourceLists(ApiModel):
    """CPU and memory of the vLLM container; GPUs are set by the operator."""

    requests: Annotated[dict[Literal["cpu", "memory", "ephemeral-storage"], Quantity], Field()] = {}
    """What the scheduler sets aside. Default: by model size."""
    limits: Annotated[dict[Literal["cpu", "memory", "ephemeral-storage"], Quantity], Field()] = {}
    """What the container may use at most. Default: none."""


class TemplateMetadata(ApiModel):
    """Labels and annotations of the pods."""

    labels: StringMap = {}
    """Further labels of the pods. Keys of tonnage.dev and of GitOps tools are refused."""
    annotations: StringMap = {}
    """Further annotations of the pods."""


class TemplateSpec(ApiModel):
    """Fields of the pods' spec."""

    service_account_name: Name | None = None
    """ServiceAccount of the pods; its token is not mounted. Default: the namespace's default."""
    priority_class_name: Name | None = None
    """PriorityClass of the pods. Default: none."""
    runtime_class_name: Name | None = None
    """RuntimeClass of the pods. Default: none."""
    image_pull_secrets: Annotated[list[LocalObjectReference], Field(max_length=16)] = []
    """Secrets for pulling the image."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Taints tolerated beside those of the pool."""
    resources: ResourceLists = ResourceLists()
    """CPU and memory of the vLLM container."""
    volumes: Annotated[list[Volume], Field(max_length=32)] = []
    """Further volumes."""
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=32)] = []
    """Where they appear in the vLLM container."""


class PodTemplateOverrides(ApiModel):
    """What the pods get beside what the operator renders."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations."""
    spec: TemplateSpec = TemplateSpec()
    """Fields of the pods' spec."""
