"""Renders the pod template, which has nothing that may change without a restart, and checks it.

The operator's own template is merged with the patch of the pool, then with that of the user. Then
comes what the plan rests on: the GPUs, the pool's node affinity and tolerations, the labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_RESTARTED_AT, VLLM_CONTAINER
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import PodTemplateError
from tonnage.engines.quantity import format_canonical, read_quantity
from tonnage.engines.replica import Replica
from tonnage.engines.vllm.arguments import check_arguments, render_arguments
from tonnage.engines.vllm.environment import check_environment, render_environment
from tonnage.engines.vllm.image import Image, choose_image
from tonnage.engines.vllm.lifetime import (
    least_grace_seconds,
    render_lifecycle,
    render_probes,
    termination_grace_seconds,
)
from tonnage.fleet.model import Pool
from tonnage.workloads.metadata import placement_labels, queue_labels
from tonnage.workloads.pod.allowed import check_user_patch
from tonnage.workloads.pod.disk import NodeDisk, node_disk
from tonnage.workloads.pod.overrides import check_overrides
from tonnage.workloads.pod.patches import (
    PodPatch,
    all_patches,
    network_patches,
    pool_patch,
    user_patch,
)
from tonnage.workloads.pod.pod_security import CONTAINER_LISTS
from tonnage.workloads.pod.resources import compute_requests, with_gpus
from tonnage.workloads.pod.scheduling import (
    check_tolerations,
    render_affinity,
    require_all,
    tolerations,
)
from tonnage.workloads.pod.security import (
    render_container_security_context,
    render_pod_security_context,
)
from tonnage.workloads.pod.strategic_merge import merge_container, merge_pod_spec
from tonnage.workloads.pod.volumes import CACHE, render_volume_mounts, render_volumes

Json = dict[str, Any]

_GRACE: Final = "terminationGracePeriodSeconds"


def render_pod_template(replica: Replica) -> Json:
    """The template of the replica's pods."""
    patches = all_patches(replica.spec, replica.option)
    labels, annotations = {}, {}
    for patch in patches:
        labels.update(patch.metadata.labels)
        annotations.update(patch.metadata.annotations)
    metadata: Json = {
        "labels": {
            **labels,
            **queue_labels(replica.owner, replica.spec.pod_metadata),
            **placement_labels(replica.owner, replica.option),
        }
    }
    if replica.spec.rollout.restarted_at is not None:
        annotations[ANNOTATION_RESTARTED_AT] = replica.spec.rollout.restarted_at
    if annotations:
        metadata["annotations"] = annotations
    own = _own_spec(replica, patches)
    merged = own
    for patch in patches:
        merged = merge_pod_spec(merged, patch.spec)
    return {"metadata": metadata, "spec": _complete(replica, merged, own, patches)}


def _own_spec(replica: Replica, patches: Sequence[PodPatch]) -> Json:
    """The pod as the operator renders it, before the patches."""
    vendor, image = replica.vendor, choose_image(replica)
    patched = _patched_container(patches)
    disk = node_disk(replica, patched.get("volumeMounts") or [])
    return {
        "affinity": render_affinity(replica.option.pool, replica.catalog, image.oldest_driver),
        "tolerations": [],
        "containers": [
            _container(replica, image, disk, patched),
            *_confined(patches, "containers"),
        ],
        **_own_init_containers(patches),
        "volumes": render_volumes(replica, disk),
        "securityContext": render_pod_security_context(vendor),
        _GRACE: termination_grace_seconds(vendor, replica.spec.rollout),
        "restartPolicy": "Always",
        # A Service named vllm would set VLLM_PORT=tcp://... in every pod of the namespace, and vLLM
        # does not start with it.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }


def _patched_container(patches: Sequence[PodPatch]) -> Json:
    """What the patches set on the vLLM container."""
    patched: Json = {}
    for patch in patches:
        patched = merge_container(patched, patch.vllm)
    return patched


def _container(replica: Replica, image: Image, disk: NodeDisk | None, patched: Json) -> Json:
    return {
        "name": VLLM_CONTAINER,
        "image": image.name,
        **({"command": list(image.command)} if image.command else {}),
        "args": render_arguments(replica),
        "env": render_environment(replica),
        "ports": [
            {"name": "http", "containerPort": load_defaults().server.port, "protocol": "TCP"}
        ],
        "resources": {"requests": compute_requests(replica, disk, patched.get("resources") or {})},
        "volumeMounts": render_volume_mounts(
            replica.spec.model.source, patched.get("volumeMounts") or []
        ),
        "securityContext": render_container_security_context(),
        "lifecycle": render_lifecycle(replica.vllm_version, replica.spec.rollout),
        **render_probes(replica.model_gib),
        # vLLM writes no termination message of its own.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def render_resources(replica: Replica) -> Json:
    """The part of the pod's spec that has the resources of its containers."""
    patches = all_patches(replica.spec, replica.option)
    patched = _patched_container(patches)
    disk = node_disk(replica, patched.get("volumeMounts") or [])
    computed = compute_requests(replica, disk, patched.get("resources") or {})
    pod: Json = {"containers": [{"name": VLLM_CONTAINER, "resources": {"requests": computed}}]}
    for patch in patches:
        lists = {kind: patch.spec[kind] for kind in CONTAINER_LISTS if kind in patch.spec}
        pod = merge_pod_spec(pod, lists)
    containers = [
        {**one, "resources": with_gpus(one["resources"], replica)}
        if one["name"] == VLLM_CONTAINER
        else one
        for one in pod["containers"]
    ]
    return {**pod, "containers": containers}


def render_security(spec: InferenceDeploymentSpec, pool: Pool, nodes: int = 1) -> Json:
    """The part of the pod's spec that Pod Security admission reads, for a replica on so many nodes
    of a recognized pool, without what the operator renders alike for all pods: its own volumes,
    ports and probes."""
    assert pool.accelerator is not None, f"pool {pool.name} has no accelerator"
    patches = (*network_patches(pool, nodes), pool_patch(pool), user_patch(spec))
    confined = {"name": VLLM_CONTAINER, "securityContext": render_container_security_context()}
    merged: Json = {
        "containers": [confined, *_confined(patches, "containers")],
        **_own_init_containers(patches),
        "securityContext": render_pod_security_context(pool.accelerator.vendor),
    }
    for patch in patches:
        merged = merge_pod_spec(merged, patch.spec)
    return merged


def _confined(patches: Sequence[PodPatch], kind: str) -> list[Json]:
    """The security context of each container that a patch adds, by default that of vLLM."""
    added = {one["name"] for patch in patches for one in patch.containers(kind)}
    added -= {VLLM_CONTAINER} if kind == "containers" else set()
    context = render_container_security_context()
    return [{"name": name, "securityContext": context} for name in sorted(added)]


def _own_init_containers(patches: Sequence[PodPatch]) -> Json:
    confined = _confined(patches, "initContainers")
    return {"initContainers": confined} if confined else {}


def _complete(replica: Replica, merged: Json, own: Json, patches: Sequence[PodPatch]) -> Json:
    """The merged pod with what the plan rests on."""
    pool = replica.option.pool
    user_tolerations = [toleration for patch in patches for toleration in patch.tolerations]
    affinities = [patch.spec.get("affinity") or {} for patch in patches]
    own_container = own["containers"][0]
    vllm = _named(merged["containers"], VLLM_CONTAINER)
    vllm["resources"] = with_gpus(vllm.get("resources") or {}, replica)
    vllm["volumeMounts"] = _own_first(vllm["volumeMounts"], own_container["volumeMounts"])
    others = [one for one in merged["containers"] if one["name"] != VLLM_CONTAINER]
    containers = {"containers": [vllm, *others]}
    if "initContainers" in merged:
        containers["initContainers"] = merged["initContainers"]
    pod = {
        **{name: value for name, value in merged.items() if name not in own},
        **merged,
        "affinity": require_all(merged["affinity"], own["affinity"], affinities),
        "tolerations": tolerations(pool, user_tolerations, replica.option.parallelism.nodes),
        **{kind: [_canonical(one) for one in each] for kind, each in containers.items()},
        _GRACE: max(merged[_GRACE], own[_GRACE]),
    }
    pod["volumes"] = _used_volumes(pod, own["volumes"])
    return pod


def _used_volumes(pod: Json, own: Sequence[Json]) -> list[Json]:
    """The volumes, without the cache where no container mounts it."""
    mounted = {
        mount.get("name")
        for kind in CONTAINER_LISTS
        for container in pod.get(kind) or []
        for mount in container.get("volumeMounts") or []
    }
    volumes = [each for each in pod["volumes"] if each["name"] != CACHE or CACHE in mounted]
    return [_canonical_volume(volume) for volume in _own_first(volumes, own)]


def _own_first(merged: Sequence[Json], own: Sequence[Json]) -> list[Json]:
    """The items that the operator rendered, and that no patch changed, come first."""
    return [*(one for one in own if one in merged), *(one for one in merged if one not in own)]


def _named(items: Sequence[Json], name: str) -> Json:
    return dict(next(item for item in items if item["name"] == name))


def _canonical(container: Json) -> Json:
    """The container with its quantities as the API server writes them."""
    resources = container.get("resources")
    if not isinstance(resources, Mapping):
        return container
    written = {
        kind: _canonical_quantities(each) if isinstance(each, Mapping) else each
        for kind, each in resources.items()
    }
    return {**container, "resources": written}


def _canonical_quantities(quantities: Mapping[str, Any]) -> Json:
    return {name: _canonical_quantity(value) for name, value in quantities.items()}


def _canonical_quantity(value: Any) -> Any:
    text = read_quantity(value)
    return value if text is None else format_canonical(text)


def _canonical_volume(volume: Json) -> Json:
    empty_dir = volume.get("emptyDir")
    if not isinstance(empty_dir, Mapping) or "sizeLimit" not in empty_dir:
        return volume
    size_limit = _canonical_quantity(empty_dir["sizeLimit"])
    return {**volume, "emptyDir": {**empty_dir, "sizeLimit": size_limit}}


def check_template(spec: InferenceDeploymentSpec) -> None:
    """Refuse settings that clash with those that the operator renders.

    Raises a RenderError that names the field and says what to do.
    """
    check_arguments(spec)
    check_environment(spec)
    if spec.pod_template is None:
        check_overrides(spec.template)
    patch = user_patch(spec)
    check_user_patch(patch)
    check_tolerations(patch.tolerations, f"{patch.source}.spec.tolerations")
    seconds, least = patch.spec.get(_GRACE), least_grace_seconds(spec.rollout)
    if seconds is not None and seconds < least:
        raise PodTemplateError(
            f"{patch.source}.spec.{_GRACE}",
            str(seconds),
            f"running requests may take {least} s to end; expected at least that",
        )
