"""Renders the pod template, which has nothing that may change without a restart, and checks it.

The operator's own template is merged with the patch of the pool, then with that of the user. Then
comes what the plan rests on: the GPUs, the pool's node affinity and tolerations, the labels.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_RESTARTED_AT
from tonnage.engines.compile_cache import compile_claim
from tonnage.engines.defaults import load_defaults
from tonnage.engines.environment import check_environment, render_environment
from tonnage.engines.errors import PodTemplateError
from tonnage.engines.image import choose_image
from tonnage.engines.interface import EngineKind, Image
from tonnage.engines.lifetime import (
    least_grace_seconds,
    render_probes,
    termination_grace_seconds,
)
from tonnage.engines.model_source import medium_of
from tonnage.engines.quantity import format_canonical, read_quantity
from tonnage.engines.registry import engine_for
from tonnage.engines.replica import Replica
from tonnage.fleet.model import Pool
from tonnage.workloads.claim_template import CLAIM, claim_template_of
from tonnage.workloads.compute_domain import CHANNEL, compute_domain_of
from tonnage.workloads.metadata import adapter_labels, placement_labels, queue_labels
from tonnage.workloads.pod.adapters import download_resources, render_adapter_downloads
from tonnage.workloads.pod.allowed import check_compile_cache, check_user_patch
from tonnage.workloads.pod.disk import NodeDisk, node_disk
from tonnage.workloads.pod.mounts import mounts_cache
from tonnage.workloads.pod.overrides import check_overrides
from tonnage.workloads.pod.patches import (
    PodPatch,
    all_patches,
    patches_on,
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
from tonnage.workloads.pod.volumes import (
    CACHE,
    CACHE_MOUNT,
    render_volume_mounts,
    render_volumes,
)
from tonnage.workloads.pod.weights import (
    check_keeper,
    keeper_resources,
    render_keeper,
    with_certificates,
)

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
            **adapter_labels(replica.spec),
            **placement_labels(replica.owner, replica.option.placement_name),
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
    engine, vendor = engine_for(replica.spec), replica.vendor
    image = choose_image(engine, replica)
    patched = _patched_container(patches, replica.spec.engine.name)
    disk = node_disk(replica, patched.get("volumeMounts") or [])
    return {
        "affinity": render_affinity(replica.option.pool, replica.catalog, image.oldest_driver),
        "tolerations": [],
        "containers": [
            _container(engine, replica, image, disk, patched),
            *_confined(patches, "containers", engine.name),
        ],
        **_own_init_containers(
            patches, [*_adapter_downloads(replica, image, patched), *render_keeper(replica, image)]
        ),
        "volumes": render_volumes(replica, disk),
        "securityContext": render_pod_security_context(vendor, engine.name),
        _GRACE: termination_grace_seconds(vendor, replica.spec.rollout),
        "restartPolicy": "Always",
        # A Service with the name of an engine would set variables of the engine in every pod of the
        # namespace: of one named vllm, VLLM_PORT=tcp://... would keep vLLM from starting.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }


def _patched_container(patches: Sequence[PodPatch], name: str) -> Json:
    """What the patches set on the engine's container."""
    patched: Json = {}
    for patch in patches:
        patched = merge_container(patched, patch.container(name))
    return patched


def _container(
    engine: EngineKind, replica: Replica, image: Image, disk: NodeDisk | None, patched: Json
) -> Json:
    return {
        "name": engine.name,
        "image": image.name,
        **({"command": list(image.command)} if image.command else {}),
        "args": engine.render_arguments(replica),
        "env": render_environment(engine, replica),
        "ports": [
            {"name": "http", "containerPort": load_defaults().server.port, "protocol": "TCP"}
        ],
        "resources": {"requests": compute_requests(replica, disk, patched.get("resources") or {})},
        "volumeMounts": render_volume_mounts(replica, patched.get("volumeMounts") or []),
        "securityContext": render_container_security_context(),
        "lifecycle": engine.render_lifecycle(replica),
        **render_probes(engine.probe_paths, replica.model_gib, medium_of(replica.spec)),
        # No engine writes no termination message of its own.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def render_resources(replica: Replica) -> Json:
    """The part of the pod's spec that has the resources of its containers."""
    patches = all_patches(replica.spec, replica.option)
    patched = _patched_container(patches, replica.spec.engine.name)
    disk = node_disk(replica, patched.get("volumeMounts") or [])
    computed = compute_requests(replica, disk, patched.get("resources") or {})
    name = replica.spec.engine.name
    pod: Json = {"containers": [{"name": name, "resources": {"requests": computed}}]}
    downloads = [*download_resources(replica.spec), *keeper_resources(replica.spec)]
    pod |= {"initContainers": downloads} if downloads else {}
    for patch in patches:
        lists = {kind: patch.spec[kind] for kind in CONTAINER_LISTS if kind in patch.spec}
        pod = merge_pod_spec(pod, lists)
    containers = [
        {**one, "resources": with_gpus(one["resources"], replica)} if one["name"] == name else one
        for one in pod["containers"]
    ]
    return {**pod, "containers": containers}


def render_security(spec: InferenceDeploymentSpec, pool: Pool, nodes: int = 1) -> Json:
    """The part of the pod's spec that Pod Security admission reads, for a replica on so many nodes
    of a recognized pool, without what the operator renders alike for all pods: its own volumes,
    ports and probes."""
    assert pool.accelerator is not None, f"pool {pool.name} has no accelerator"
    patches = patches_on(spec, pool, nodes)
    confined = {"name": spec.engine.name, "securityContext": render_container_security_context()}
    merged: Json = {
        "containers": [confined, *_confined(patches, "containers", spec.engine.name)],
        **_own_init_containers(patches),
        "securityContext": render_pod_security_context(pool.accelerator.vendor, spec.engine.name),
    }
    for patch in patches:
        merged = merge_pod_spec(merged, patch.spec)
    return merged


def _confined(patches: Sequence[PodPatch], kind: str, engine: str | None = None) -> list[Json]:
    """The security context of each container that a patch adds, by default that of `engine`."""
    added = {one["name"] for patch in patches for one in patch.containers(kind)}
    added -= {engine}
    context = render_container_security_context()
    return [{"name": name, "securityContext": context} for name in sorted(added)]


def _own_init_containers(patches: Sequence[PodPatch], downloads: Sequence[Json] = ()) -> Json:
    containers = [*downloads, *_confined(patches, "initContainers")]
    return {"initContainers": containers} if containers else {}


def _adapter_downloads(replica: Replica, image: Image, patched: Json) -> list[Json]:
    """The containers that download adapters, to the volume that is mounted as the cache."""
    mounts = patched.get("volumeMounts") or []
    cache = next(filter(mounts_cache, mounts), CACHE_MOUNT)
    return render_adapter_downloads(engine_for(replica.spec), replica, image, cache)


def _complete(replica: Replica, merged: Json, own: Json, patches: Sequence[PodPatch]) -> Json:
    """The merged pod with what the plan rests on."""
    pool = replica.option.pool
    user_tolerations = [toleration for patch in patches for toleration in patch.tolerations]
    affinities = [patch.spec.get("affinity") or {} for patch in patches]
    own_container = own["containers"][0]
    name = own_container["name"]
    server = _named(merged["containers"], name)
    server["resources"] = with_gpus(server.get("resources") or {}, replica)
    server["volumeMounts"] = _own_first(server["volumeMounts"], own_container["volumeMounts"])
    others = [one for one in merged["containers"] if one["name"] != name]
    containers = {"containers": [server, *others]}
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
    pod = with_certificates(pod, server)
    claims = {
        CLAIM: claim_template_of(replica.owner, replica.option),
        CHANNEL: compute_domain_of(replica.owner, replica.option),
    }
    claimed = [
        {"name": name, "resourceClaimTemplateName": template}
        for name, template in claims.items()
        if template is not None
    ]
    return {**pod, "resourceClaims": claimed} if claimed else pod


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
    engine = engine_for(spec)
    engine.check(spec)
    check_environment(spec)
    if spec.pod_template is None:
        check_overrides(spec.template)
    patch = user_patch(spec)
    check_user_patch(patch, engine)
    if compile_claim(spec) is not None:
        check_compile_cache(patch, engine.name)
    check_keeper(spec, patch)
    check_tolerations(patch.tolerations, f"{patch.source}.spec.tolerations")
    seconds, least = patch.spec.get(_GRACE), least_grace_seconds(spec.rollout)
    if seconds is not None and seconds < least:
        raise PodTemplateError(
            f"{patch.source}.spec.{_GRACE}",
            str(seconds),
            f"running requests may take {least} s to end; expected at least that",
        )
