"""Which fields of a pod a user and a pool may set, and what to do instead of setting others.

The lists name what is allowed, not what is forbidden. What the plan rests on has a field of its
own, or none: the image, the arguments and the variables of the engine, its GPUs, the labels that
select pods, and the tolerations and labels of a pool's nodes.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.api.text import redact
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import PodTemplateError
from tonnage.engines.interface import EngineKind
from tonnage.engines.quantity import is_quantity
from tonnage.engines.registry import ENGINE_KINDS
from tonnage.workloads.metadata import check_metadata
from tonnage.workloads.pod.mounts import normalize_path
from tonnage.workloads.pod.patches import PodPatch
from tonnage.workloads.pod.pod_security import CONTAINER_LISTS, baseline_violations
from tonnage.workloads.pod.strategic_merge import (
    PATCH,
    MergeError,
    check_directives,
    merge_pod_spec,
)
from tonnage.workloads.pod.volumes import (
    COMPILE_CACHE,
    MODEL_VOLUME,
    OWN_MOUNT_PATHS,
    SHARED_MEMORY,
)

_POD_FIELDS: Final = frozenset(
    {
        "affinity", "containers", "dnsConfig", "dnsPolicy", "hostAliases", "hostUsers",
        "imagePullSecrets", "initContainers", "nodeSelector", "priorityClassName",
        "readinessGates", "runtimeClassName", "schedulerName", "securityContext",
        "serviceAccountName", "shareProcessNamespace", "terminationGracePeriodSeconds",
        "topologySpreadConstraints", "volumes",
    }
)  # fmt: skip
_HOST_FIELDS: Final = frozenset({"hostIPC", "hostNetwork", "hostPID"})
_ENGINE_FIELDS: Final = frozenset(
    {
        "imagePullPolicy", "lifecycle", "livenessProbe", "name", "readinessProbe", "resources",
        "securityContext", "startupProbe", "volumeMounts",
    }
)  # fmt: skip
_CONTAINER_FIELDS: Final = _ENGINE_FIELDS | {
    "args", "command", "env", "image", "ports", "terminationMessagePath",
    "terminationMessagePolicy", "workingDir",
}  # fmt: skip
_USER_SOURCES: Final = frozenset(
    {
        "configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
        "projected", "secret",
    }
)  # fmt: skip
"""Sources of a user's volumes: those that stay in the namespace."""

_USER_PROJECTIONS: Final = frozenset({"configMap", "downwardAPI", "secret"})

_ONLY_GPUS: Final = "the operator requests GPUs itself; remove it"
_TERMS: Final = "nodeSelectorTerms"
_SPREAD: Final = "topologySpreadConstraints"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_GPU_RESOURCE: Final = re.compile(r"(amd|nvidia)\.com/.*|.*/gpu")
_MAX_SHOWN_CHARS: Final = 60
_HTTP: Final = "http"
_SECRET_FIELDS: Final = frozenset({"args", "command", "env", "envFrom"})
"""Fields whose values may be secrets, which no message shows."""

_INSTEAD: Final = {
    "automountServiceAccountToken": "pods get no token of the API server; remove it",
    "enableServiceLinks": "a Service named vllm would keep vLLM from starting; remove it",
    "nodeName": "the scheduler chooses the node; use affinity or spec.placement",
    "resourceClaims": _ONLY_GPUS,
    "restartPolicy": "a Deployment needs Always; remove it",
}
_POOL_INSTEAD: Final = {
    "nodeSelector": "it selects no node of the pool; use spec.nodeSelector of the pool",
    "priorityClassName": "the object decides its priority; use spec.podTemplate of the object",
}


def check_user_patch(patch: PodPatch, engine: EngineKind) -> None:
    """Refuse what a user must not set on pods with this engine. Raises PodTemplateError or
    ForbiddenMetadataError."""
    _check_fields(patch, _POD_FIELDS, _INSTEAD, {engine.name: _instead_for(engine)})
    _check_baseline(patch, "ask the platform team to set it in an AcceleratorPool")
    for path, source in _sources(patch):
        if source not in _USER_SOURCES:
            raise _refuse(patch, f"{path}.{source}", None, _expected_one_of(_USER_SOURCES))
    for path, projection in _projections(patch):
        if projection not in _USER_PROJECTIONS:
            raise _refuse(patch, f"{path}.{projection}", None, _expected_one_of(_USER_PROJECTIONS))


def check_pool_patch(patch: PodPatch, *, privileged: bool) -> None:
    """Refuse what a pool must not set; with `privileged`, it may break the Pod Security Standard
    baseline. Raises PodTemplateError or ForbiddenMetadataError."""
    fields = _POD_FIELDS - _POOL_INSTEAD.keys() | _HOST_FIELDS
    of_engines = {each.name: _instead_for_pool(each) for each in ENGINE_KINDS.values()}
    _check_fields(patch, fields, _INSTEAD | _POOL_INSTEAD, of_engines)
    if patch.tolerations:
        raise _refuse(patch, "tolerations", None, "the fleet counts on it; use spec.tolerations")
    if not privileged:
        _check_baseline(patch, "run the operator with --pool-pod-security=privileged")


def check_compile_cache(patch: PodPatch, engine: str) -> None:
    """Refuse a volume or a mount in the place of that with compiled kernels, for specs that have
    one. Raises PodTemplateError."""
    for index, volume in enumerate(_volumes(patch)):
        if volume.get("name") == COMPILE_CACHE:
            raise _refuse(patch, f"volumes[{index}].name", COMPILE_CACHE,
                          "it is that of spec.engine.compileCache; use another name")  # fmt: skip
    path = load_defaults().compile_cache_path
    for mount in patch.container(engine).get("volumeMounts") or []:
        if normalize_path(mount) == path:
            raise _refuse(patch, f"containers[{engine}].volumeMounts", path,
                          "it is that of spec.engine.compileCache; use another path")  # fmt: skip


def _check_baseline(patch: PodPatch, otherwise: str) -> None:
    for violation in baseline_violations(patch.spec):
        wanted = f"the Pod Security Standard baseline asks for {violation.want}"
        hint = f"{wanted}; remove it, or {otherwise}"
        raise _refuse(patch, violation.path, violation.value, hint)


def _instead_for(engine: EngineKind) -> dict[str, str]:
    """What to do instead of setting a field of the engine's container."""
    settings, serve = f"spec.engine.{engine.name}", " ".join(engine.command)
    termination_message = f"the operator reads there why {engine.title} failed; remove it"
    return {
        "args": f"use {settings}.extraArgs of the object",
        "command": f"the operator starts {serve}; use {settings}.extraArgs of the object",
        "env": f"use {settings}.env",
        "envFrom": f"use {settings}.env, which names each variable",
        "image": f"use {settings}.image or {settings}.version",
        "ports": "the Service and the probes rest on the port; add a container for another one",
        "terminationMessagePath": termination_message,
        "terminationMessagePolicy": termination_message,
    }


def _instead_for_pool(engine: EngineKind) -> dict[str, str]:
    image = f"use spec.images.{engine.name} or spec.images.mirrors of the pool"
    return {**_instead_for(engine), "env": "use spec.env of the pool", "image": image}


def _check_fields(
    patch: PodPatch,
    fields: frozenset[str],
    instead: Mapping[str, str],
    of_engines: Mapping[str, Mapping[str, str]],
) -> None:
    """`of_engines` has what to do instead of setting a field of an engine's container, by its
    name; other containers are the user's own."""
    check_metadata(patch.metadata, f"{patch.source}.metadata")
    for name, value in patch.spec.items():
        if name not in fields:
            raise _refuse(patch, name, value, instead.get(name) or _expected_one_of(fields))
    _check_shape(patch)
    _check_affinity(patch)
    _check_grace(patch)
    _check_node_selector(patch)
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(patch.containers(kind)):
            path = f"{kind}[{index}]"
            name = container["name"]
            if kind == "containers" and isinstance(name, str) and name in of_engines:
                _check_engine(patch, container, path, of_engines[name])
            else:
                _check_container(patch, container, path, kind, of_engines)
    _check_own_volumes(patch)


def _check_shape(patch: PodPatch) -> None:
    """Refuse what cannot be merged, and directives that would remove what the plan rests on."""
    for name in (*CONTAINER_LISTS, "volumes"):
        if name in patch.spec and not isinstance(patch.spec[name], list):
            raise _refuse(patch, name, patch.spec[name], "expected a list")
    stub = {kind: [{"name": one.get("name")} for one in patch.containers(kind)]
            for kind in CONTAINER_LISTS}  # fmt: skip
    try:
        check_directives(patch.spec, "spec")
        merge_pod_spec(stub, patch.spec)
    except MergeError as error:
        path = error.path.removeprefix("spec.")
        raise _refuse(patch, path, None, error.problem) from None
    for name, value in patch.spec.items():
        for index, item in enumerate(value if isinstance(value, list) else []):
            if name != _SPREAD and isinstance(item, Mapping) and PATCH in item:
                raise _refuse(
                    patch, f"{name}[{index}].{PATCH}", item[PATCH], f"only {_SPREAD} has items"
                    " to replace or delete; remove it",
                )  # fmt: skip


def _check_affinity(patch: PodPatch) -> None:
    """Refuse directives and nulls where the affinity of the pool is added."""
    value, path = patch.spec.get("affinity", {}), "affinity"
    for inner in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", _TERMS):
        if not isinstance(value, Mapping) or PATCH in value:
            raise _refuse(patch, path, value, "expected an object without $patch: the affinity of"
                          " the pool always applies as well")  # fmt: skip
        if inner not in value:
            return
        value, path = value[inner], f"{path}.{inner}"
    for index, term in enumerate(_objects(patch, value, path)):
        for name, expressions in term.items():
            _objects(patch, expressions, f"{path}[{index}].{name}")


def _objects(patch: PodPatch, value: object, path: str) -> Sequence[Mapping[str, Any]]:
    """The items of a list of objects; anything else is refused."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise _refuse(patch, path, value, "expected a list of objects")
    return value


def _check_grace(patch: PodPatch) -> None:
    seconds = patch.spec.get("terminationGracePeriodSeconds", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds < 2**63:
        raise _refuse(patch, "terminationGracePeriodSeconds", seconds, "expected seconds")


def _check_node_selector(patch: PodPatch) -> None:
    for name, value in _object(patch, patch.spec.get("nodeSelector"), "nodeSelector").items():
        if value is not None and not isinstance(value, str):
            raise _refuse(patch, f"nodeSelector[{name}]", value, "expected a text; quote it")


def _check_engine(
    patch: PodPatch, container: Mapping[str, Any], path: str, instead: Mapping[str, str]
) -> None:
    for name, value in container.items():
        if name not in _ENGINE_FIELDS:
            hint = instead.get(name) or _expected_one_of(_ENGINE_FIELDS)
            raise _refuse(patch, f"{path}.{name}", _unless_secret(name, value), hint)
    if "readinessProbe" in container and not container["readinessProbe"]:
        raise _refuse(patch, f"{path}.readinessProbe", container["readinessProbe"],
                      "a replica serves once it is ready; change the probe instead")  # fmt: skip
    _check_resources(patch, container, path)
    for where, mount in _check_mounts(patch, container, path):
        if PATCH in mount:
            raise _refuse(
                patch, f"{where}.{PATCH}", mount[PATCH], "the operator's own mounts stay; remove it"
            )
        if normalize_path(mount) in OWN_MOUNT_PATHS:
            raise _refuse(
                patch,
                f"{where}.mountPath",
                mount["mountPath"],
                "it is one of the operator's own; use another path",
            )


def _check_container(
    patch: PodPatch,
    container: Mapping[str, Any],
    path: str,
    kind: str,
    reserved: Collection[str],
) -> None:
    allowed = _CONTAINER_FIELDS | ({"restartPolicy"} if kind == "initContainers" else set())
    for name, value in container.items():
        if name not in allowed:
            raise _refuse(
                patch, f"{path}.{name}", _unless_secret(name, value), _expected_one_of(allowed)
            )
    name = container["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in reserved:
        expected = f"expected a DNS label other than {', '.join(reserved)}"
        raise _refuse(patch, f"{path}.name", name, expected)
    if not isinstance(container.get("image"), str) or not container["image"]:
        raise _refuse(patch, f"{path}.image", container.get("image"), "expected an image")
    _check_resources(patch, container, path)
    _check_mounts(patch, container, path)
    variables = _objects(patch, container.get("env", []), f"{path}.env")
    for index, variable in enumerate(variables):
        if variable.get("name") in load_defaults().reserved_variables.names:
            raise _refuse(patch, f"{path}.env[{index}].name", variable["name"],
                          "it selects GPUs; remove it")  # fmt: skip
    port = load_defaults().server.port
    ports = _objects(patch, container.get("ports", []), f"{path}.ports")
    for index, each in enumerate(ports):
        if each.get("name") == _HTTP or each.get("containerPort") == port:
            raise _refuse(patch, f"{path}.ports[{index}]", each.get("containerPort"),
                          f"the engine has port {port}, named {_HTTP}; use another")  # fmt: skip


def _check_resources(patch: PodPatch, container: Mapping[str, Any], path: str) -> None:
    resources = _object(patch, container.get("resources"), f"{path}.resources")
    for name in resources:
        if name not in ("requests", "limits", PATCH):
            raise _refuse(patch, f"{path}.resources.{name}", resources[name], _ONLY_GPUS)
    for kind in ("requests", "limits"):
        quantities = _object(patch, resources.get(kind), f"{path}.resources.{kind}")
        for name, quantity in quantities.items():
            where = f"{path}.resources.{kind}[{name}]"
            if _GPU_RESOURCE.fullmatch(name):
                raise _refuse(patch, where, quantity, _ONLY_GPUS)
            if name != PATCH:
                _check_quantity(patch, quantity, where)


def _check_quantity(patch: PodPatch, value: object, path: str) -> None:
    """Null removes a quantity."""
    if value is not None and not is_quantity(value):
        raise _refuse(patch, path, value, "expected a quantity, such as 500m, 80G or 80Gi")


def _object(patch: PodPatch, value: object, path: str) -> Mapping[str, Any]:
    """An object, empty for null; anything else is refused."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refuse(patch, path, value, "expected an object")
    return value


def _check_mounts(
    patch: PodPatch, container: Mapping[str, Any], path: str
) -> list[tuple[str, Mapping[str, Any]]]:
    """Refuse mounts without a name or a path; return the mounts with their paths in the patch."""
    mounts = _objects(patch, container.get("volumeMounts", []), f"{path}.volumeMounts")
    by_path = [(f"{path}.volumeMounts[{index}]", mount) for index, mount in enumerate(mounts)]
    for where, mount in by_path:
        for name in ("name", "mountPath"):
            if PATCH not in mount and not isinstance(mount.get(name), str):
                raise _refuse(patch, f"{where}.{name}", mount.get(name), "expected a text")
    return by_path


def _check_own_volumes(patch: PodPatch) -> None:
    for index, volume in enumerate(_volumes(patch)):
        path, name = f"volumes[{index}]", volume.get("name")
        empty = _object(patch, volume.get("emptyDir"), f"{path}.emptyDir")
        _check_quantity(patch, empty.get("sizeLimit"), f"{path}.emptyDir.sizeLimit")
        if name == MODEL_VOLUME:
            raise _refuse(patch, f"{path}.name", name,
                          "it has the model; use spec.model.source, or another name")  # fmt: skip
        if name == SHARED_MEMORY and volume.keys() - {"name", "emptyDir", "$retainKeys"}:
            raise _refuse(patch, path, name, "it is memory; set emptyDir.sizeLimit only")


def _volumes(patch: PodPatch) -> list[Mapping[str, Any]]:
    return [one for one in patch.spec.get("volumes") or [] if isinstance(one, Mapping)]


def _sources(patch: PodPatch) -> Iterator[tuple[str, str]]:
    for index, volume in enumerate(_volumes(patch)):
        for name in volume:
            if name != "name" and not name.startswith("$") and volume[name] is not None:
                yield f"volumes[{index}]", name


def _projections(patch: PodPatch) -> Iterator[tuple[str, str]]:
    for index, volume in enumerate(_volumes(patch)):
        projected = volume.get("projected")
        sources = projected.get("sources") if isinstance(projected, Mapping) else None
        for position, source in enumerate(sources if isinstance(sources, list) else []):
            for name in source if isinstance(source, Mapping) else ():
                yield f"volumes[{index}].projected.sources[{position}]", name


def _refuse(patch: PodPatch, path: str, value: object, instead: str) -> PodTemplateError:
    return PodTemplateError(f"{patch.source}.spec.{path}", _show(value), instead)


def _unless_secret(name: str, value: object) -> object:
    return None if name in _SECRET_FIELDS else value


def _show(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return redact(repr(value))[:_MAX_SHOWN_CHARS]
    return None


def _expected_one_of(names: frozenset[str] | set[str]) -> str:
    return f"expected one of {', '.join(sorted(names))}"
