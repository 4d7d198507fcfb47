"""The patches of a pod template: that of the pool, and that of the user."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.pod import PodTemplate, PodTemplateOverrides, TemplateMetadata, Toleration
from tonnage.engines.quantity import render_stored
from tonnage.engines.registry import ENGINE_KINDS
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

    def container(self, name: str) -> dict[str, Any]:
        """The fields of the container of that name that it sets."""
        merged: dict[str, Any] = {}
        for container in self.containers():
            if container.get("name") == name:
                merged = merge_container(merged, container)
        return merged

    def without_other_engines(self, engine: str) -> "PodPatch":
        """The patch without what it sets on the containers of other engines."""
        others = ENGINE_KINDS.keys() - {engine}
        containers = [one for one in self.containers() if one.get("name") not in others]
        if len(containers) == len(self.containers()):
            return self
        return replace(self, spec={**self.spec, "containers": containers})


def user_patch(spec: InferenceDeploymentSpec) -> PodPatch:
    """The patch of an InferenceDeployment."""
    if spec.pod_template is not None:
        return _patch_of("spec.podTemplate", spec.pod_template)
    return _patch_of_overrides(spec.template, spec.engine.name)


def all_patches(spec: InferenceDeploymentSpec, option: Option) -> tuple[PodPatch, ...]:
    """The patches of a replica's pods, in the order in which they are merged."""
    return patches_on(spec, option.pool, option.parallelism.nodes)


def patches_on(spec: InferenceDeploymentSpec, pool: Pool, nodes: int) -> tuple[PodPatch, ...]:
    """The patches of the pods of a replica on so many nodes of a pool, in the order in which they
    are merged."""
    engine = spec.engine.name
    of_pool = pool_patch(pool).without_other_engines(engine)
    return (*_network_patches(pool, nodes, engine), of_pool, user_patch(spec))


def _network_patches(pool: Pool, nodes: int, container: str) -> tuple[PodPatch, ...]:
    """What a replica on so many nodes needs for the network between them; none on one node."""
    network = pool.network
    if nodes == 1 or network is None:
        return ()
    resources = dict(network.requests)
    if network.resource is not None:
        resources = {network.resource: str(network.count), **resources}
    engine: dict[str, Any] = {"name": container}
    if resources:
        engine["resources"] = {"requests": resources, "limits": dict(resources)}
    if network.capabilities:
        engine["securityContext"] = {"capabilities": {"add": list(network.capabilities)}}
    source = f"AcceleratorPool {pool.name}: spec.interconnect"
    metadata = TemplateMetadata(annotations=dict(network.annotations))
    return (PodPatch(source, metadata, {"containers": [engine]}),)


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


def _patch_of_overrides(template: PodTemplateOverrides, container: str) -> PodPatch:
    """The deprecated template as a patch."""
    user = template.spec
    engine = {
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
    set_fields = {name: value for name, value in engine.items() if value}
    spec = {
        "serviceAccountName": user.service_account_name,
        "priorityClassName": user.priority_class_name,
        "runtimeClassName": user.runtime_class_name,
        "imagePullSecrets": [secret.to_dict() for secret in user.image_pull_secrets],
        "volumes": [render_stored(volume) for volume in user.volumes],
        "containers": [{"name": container, **set_fields}] if set_fields else [],
    }
    set_spec = {name: value for name, value in spec.items() if value}
    return PodPatch("spec.template", template.metadata, set_spec, tuple(user.tolerations))
