"""Whether the pods of an object can run on a pool, with the pool's podTemplate and in the object's
namespace."""

from collections.abc import Iterator
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.pod import TemplateMetadata
from tonnage.api.pool import Interconnect
from tonnage.engines.compile_cache import compile_claim
from tonnage.engines.errors import PodTemplateError, RenderError
from tonnage.engines.inputs import RenderSettings
from tonnage.fleet.model import Pool
from tonnage.placement.namespace import PodSecurityLevel
from tonnage.workloads.metadata import check_metadata
from tonnage.workloads.pod.allowed import check_compile_cache, check_pool_patch
from tonnage.workloads.pod.mounts import normalize_path
from tonnage.workloads.pod.patches import PodPatch, pool_patch, user_patch
from tonnage.workloads.pod.pod_security import CONTAINER_LISTS, find_violation
from tonnage.workloads.pod.resources import check_resources
from tonnage.workloads.pod.strategic_merge import merge_container
from tonnage.workloads.pod.template import render_security
from tonnage.workloads.pod.volumes import CACHE, MODEL_VOLUME, SHARED_MEMORY
from tonnage.workloads.pod.weights import check_keeper

_PINS_MEMORY: Final = "IPC_LOCK"
"""The capability that RDMA needs. It lets a container lock memory, within the memory of its pod."""


def explain_pool_template(pool: Pool, settings: RenderSettings) -> str | None:
    """Why the podTemplate or the interconnect of a pool is refused, None where neither is."""
    if pool.declared is None:
        return None
    try:
        _check_interconnect(pool.name, pool.declared.interconnect, settings)
        if pool.declared.pod_template is not None:
            check_pool_patch(pool_patch(pool), privileged=settings.privileged_pools)
    except RenderError as error:
        return str(error)
    return None


def _check_interconnect(
    pool: str, interconnect: Interconnect | None, settings: RenderSettings
) -> None:
    if interconnect is None:
        return
    field = f"AcceleratorPool {pool}: spec.interconnect"
    check_metadata(TemplateMetadata(annotations=interconnect.annotations), field)
    if settings.privileged_pools:
        return
    for index, capability in enumerate(interconnect.capabilities or ()):
        if capability != _PINS_MEMORY:
            raise PodTemplateError(
                f"{field}.capabilities[{index}]",
                repr(capability),
                f"expected {_PINS_MEMORY}, or run the operator with --pool-pod-security=privileged",
            )


def explain_templates(
    spec: InferenceDeploymentSpec, pool: Pool, settings: RenderSettings
) -> str | None:
    """Why the podTemplates of an accepted spec and of a pool do not go together, None where they
    do."""
    declared = pool.declared
    refused = explain_pool_template(pool, settings)
    if refused is not None:
        return refused
    try:
        check_keeper(spec, pool_patch(pool))
    except RenderError as error:
        return str(error)
    if spec.pod_template is None and (declared is None or declared.pod_template is None):
        return None  # check_template has checked all that there is.
    engine = spec.engine.name
    of_user, of_pool = user_patch(spec), pool_patch(pool).without_other_engines(engine)
    try:
        _check_names(of_user, of_pool, engine)
        _check_mounts(of_user, of_pool)
        if compile_claim(spec) is not None:
            check_compile_cache(of_pool, engine)
        merged = merge_container(of_pool.container(engine), of_user.container(engine))
        path = f"{of_user.source}.spec.containers[{engine}].resources"
        check_resources(merged.get("resources") or {}, path)
    except RenderError as error:
        return str(error)
    return None


def explain_pod_security(
    spec: InferenceDeploymentSpec, pool: Pool, level: PodSecurityLevel, nodes: int
) -> str | None:
    """Why a namespace that enforces this Pod Security Standard refuses the pods of replicas on so
    many nodes of a recognized pool, None where it does not."""
    if level is PodSecurityLevel.PRIVILEGED:
        return None
    if spec.model.is_on_node_disk:
        return (
            f"the namespace enforces the Pod Security Standard {level}, which forbids hostPath"
            " volumes, and spec.model.cache.nodeDisk mounts one; use another cache, or a namespace"
            " without this standard"
        )
    violation = find_violation(render_security(spec, pool, nodes), level)
    if violation is None:
        return None
    value = "not set" if violation.value in (None, []) else repr(violation.value)
    return (
        f"the namespace enforces the Pod Security Standard {level}, which asks for"
        f" {violation.want} in {violation.path} (it is {value}); set it in spec.podTemplate of"
        " the object or of the AcceleratorPool, or use another namespace"
    )


def _check_names(of_user: PodPatch, of_pool: PodPatch, engine: str) -> None:
    """A user must not change a container or a volume of the platform's, which may have rights that
    the user has not."""
    taken = dict(_named_items(of_pool, engine))
    for (kind, name), path in _named_items(of_user, engine):
        if (kind, name) in taken:
            raise PodTemplateError(
                f"{of_user.source}.spec.{path}",
                repr(name),
                f"it is set by {of_pool.source}.spec.{taken[kind, name]}; choose another name",
            )


def _named_items(patch: PodPatch, engine: str) -> Iterator[tuple[tuple[str, str], str]]:
    """What a patch adds, by kind and name, and its path."""
    for kind in (*CONTAINER_LISTS, "volumes"):
        items = patch.spec.get(kind)
        for index, item in enumerate(items if isinstance(items, list) else []):
            name = str(item.get("name"))
            if (kind, name) != ("containers", engine):
                yield (kind, name), f"{kind}[{index}].name"
    for index, mount in enumerate(patch.container(engine).get("volumeMounts") or []):
        yield ("mountPath", normalize_path(mount)), f"volumeMounts[{index}].mountPath"


def _check_mounts(of_user: PodPatch, of_pool: PodPatch) -> None:
    known = {CACHE, SHARED_MEMORY, MODEL_VOLUME}
    for patch in (of_pool, of_user):
        known |= {str(volume.get("name")) for volume in patch.spec.get("volumes") or []}
        for kind in CONTAINER_LISTS:
            for index, container in enumerate(patch.containers(kind)):
                for mount in container.get("volumeMounts") or []:
                    if mount.get("name") not in known:
                        raise PodTemplateError(
                            f"{patch.source}.spec.{kind}[{index}].volumeMounts",
                            repr(mount.get("name")),
                            "there is no volume of this name; add it to volumes",
                        )
