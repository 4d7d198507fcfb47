"""The patches of a pod template: that of the pool, and that of the user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import VLLM_CONTAINER
from tonnage.api.pod import PodTemplate, PodTemplateOverrides, TemplateMetadata, Toleration
from tonnage.engines.quantity import render_stored
from tonnage.fleet.model import Pool
from tonnage.placement.model import Option
from tonnage.workloads.pod.strategic_merge import DIRECTIVES, RETAIN_KEYS, merge_container

NO_METADATA: Final = TemplateMetadata()


@dataclass(frozen=True, slots=True)
class PodPatch:
    """What a pool or a user sets on the pods; `spec` is a strategic merge patch without the
    tolerations, `source` the path of the template, for messages."""

    source: str
    metadata: TemplateMetadata = NO_METADATA
    spec: Mapping[str, Any] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()

    def containers(self, kind: str = "containers") -> list[Mapping[str, Any]]:
        """Its containers, or its `initContainers`."""
        return [one for one in self.spec.get(kind) or [] if isinstance(one, Mapping)]

    @property
    def vllm(self) -> dict[str, Any]:
        """The fields of the vLLM container that it sets."""
        merged: dict[str, Any] = {}
        for container in self.containers():
            if container.get("name") == VLLM_CONTAINER:
                merged = merge_container(merged, container)
        return merged


def user_patch(spec: InferenceDeploymentSpec) -> PodPatch:
    """The patch of an InferenceDeployment."""
    if spec.pod_template is not None:
        return _patch_of("spec.podTemplate", spec.pod_template)
    return _patch_of_overrides(spec.template)


def all_patches(spec: InferenceDeploymentSpec, option: Option) -> tuple[PodPatch, ...]:
    """The patches of a replica's pods, in the order in which they are merged."""
    return (
        *network_patches(option.pool, option.parallelism.nodes),
        pool_patch(option.pool),
        user_patch(spec),
    )


def network_patches(pool: Pool, nodes: int) -> tuple[PodPatch, ...]:
    """What a replica on so many nodes needs for the network between them; none on one node."""
    network = pool.network
    if nodes == 1 or network is None:
        return ()
    resources = {network.resource: str(network.count), **network.requests}
    vllm: dict[str, Any] = {
        "name": VLLM_CONTAINER,
        "resources": {"requests": resources, "limits": dict(resources)},
    }
    if network.capabilities:
        vllm["securityContext"] = {"capabilities": {"add": list(network.capabilities)}}
    source = f"AcceleratorPool {pool.name}: spec.interconnect"
    metadata = TemplateMetadata(annotations=dict(network.annotations))
    return (PodPatch(source, metadata, {"containers": [vllm]}),)


def pool_patch(pool: Pool) -> PodPatch:
    """The patch of a pool; an empty one for a pool without a template, or with a refused one."""
    source = f"AcceleratorPool {pool.name}: spec.podTemplate"
    template = pool.declared.pod_template if pool.declared and not pool.refused else None
    return PodPatch(source) if template is None else _patch_of(source, template)


def _patch_of(source: str, template: PodTemplate) -> PodPatch:
    spec = dict(template.spec.others)
    if template.spec.priority_class_name is not None:
        spec["priorityClassName"] = template.spec.priority_class_name
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = [_with_one_source(volume) for volume in spec["volumes"]]
    return PodPatch(source, template.metadata, spec, tuple(template.spec.tolerations or ()))


def _with_one_source(volume: Any) -> Any:
    """The volume with the keys that it retains, as `kubectl apply` writes them: another source
    replaces that of an existing volume."""
    if not isinstance(volume, Mapping) or volume.keys() & DIRECTIVES or len(volume) < 2:
        return volume
    return {RETAIN_KEYS: [name for name, value in volume.items() if value is not None], **volume}


def _patch_of_overrides(template: PodTemplateOverrides) -> PodPatch:
    """The deprecated template as a patch."""
    user = template.spec
    vllm = {
        "resources": {
            name: quantities
            for name, quantities in (
                ("requests", dict(user.resources.requests)),
                ("limits", dict(user.resources.limits)),
            )
            if quantities
        },
        "volumeMounts": [render_stored(mount) for mount in user.volume_mounts],
    }
    set_fields = {name: value for name, value in vllm.items() if value}
    spec = {
        "serviceAccountName": user.service_account_name,
        "priorityClassName": user.priority_class_name,
        "runtimeClassName": user.runtime_class_name,
        "imagePullSecrets": [secret.to_dict() for secret in user.image_pull_secrets],
        "volumes": [render_stored(volume) for volume in user.volumes],
        "containers": [{"name": VLLM_CONTAINER, **set_fields}] if set_fields else [],
    }
    set_spec = {name: value for name, value in spec.items() if value}
    return PodPatch("spec.template", template.metadata, set_spec, tuple(user.tolerations))
