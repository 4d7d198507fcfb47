"""The Pod Security Standards "baseline" and "restricted", as of Kubernetes 1.35.

The operator's own pods meet the baseline, so that a merged template meets it if each patch does.
Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/ and
k8s.io/pod-security-admission/policy v0.35.4.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.engines.defaults import PodSecurity, load_defaults
from tonnage.placement.namespace import PodSecurityLevel

CONTAINER_LISTS: Final = ("containers", "initContainers")

_RESTRICTED_SOURCES: Final = frozenset(
    {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image",
        "persistentVolumeClaim", "projected", "secret",
    }
)  # fmt: skip
"""Sources of volumes that the standard "restricted" allows."""

_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_HOOKS: Final = ("postStart", "preStop")
_HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")


@dataclass(frozen=True, slots=True)
class Violation:
    """A field, its value, and what the standard asks for."""

    path: str
    value: object
    want: str


def find_violation(spec: Mapping[str, Any], level: PodSecurityLevel) -> Violation | None:
    """The first field of a pod's spec that is against the standard; None where there is none."""
    match level:
        case PodSecurityLevel.PRIVILEGED:
            return None
        case PodSecurityLevel.BASELINE:
            return next(baseline_violations(spec), None)
        case PodSecurityLevel.RESTRICTED:
            return next(_restricted_violations(spec), None)


def _restricted_violations(spec: Mapping[str, Any]) -> Iterator[Violation]:
    """What the spec of a pod sets against the standard "restricted", or does not set, with paths
    below the spec. What is against the baseline comes first."""
    yield from baseline_violations(spec)
    for index, volume in enumerate(_mappings(spec.get("volumes"))):
        for source in volume.keys() - {"name", "hostPath"} - _RESTRICTED_SOURCES:
            yield Violation(f"volumes[{index}].{source}", volume[source], "another type of volume")
    pod = _mapping(spec.get("securityContext"))
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(_mappings(spec.get(kind))):
            context = _mapping(container.get("securityContext"))
            path = f"{kind}[{index}].securityContext"
            yield from _of_confined(context, path)
            yield from _of_inherited(context, pod, path, spec.get("hostUsers") is False)


def _of_confined(context: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """What each container has to set itself."""
    if context.get("allowPrivilegeEscalation") is not False:
        value = context.get("allowPrivilegeEscalation")
        yield Violation(f"{path}.allowPrivilegeEscalation", value, "false")
    capabilities = _mapping(context.get("capabilities"))
    dropped, added = capabilities.get("drop") or [], capabilities.get("add") or []
    if "ALL" not in dropped:
        yield Violation(f"{path}.capabilities.drop", dropped, "ALL")
    for capability in added:
        if capability != "NET_BIND_SERVICE":
            yield Violation(f"{path}.capabilities.add", capability, "no further capability")


def _of_inherited(
    context: Mapping[str, Any], pod: Mapping[str, Any], path: str, has_user_namespace: bool
) -> Iterator[Violation]:
    """What a container has to set where its pod does not."""

    def effective(name: str) -> tuple[str, Any]:
        own = context.get(name)
        return (
            (f"{path}.{name}", own)
            if own is not None
            else (f"securityContext.{name}", pod.get(name))
        )

    where, profile = effective("seccompProfile")
    if profile is None:
        yield Violation(where, None, "RuntimeDefault or Localhost")
    if has_user_namespace:
        return  # root there is another user on the node
    where, non_root = effective("runAsNonRoot")
    if non_root is not True:
        yield Violation(where, non_root, "true")
    where, user = effective("runAsUser")
    if user == 0:
        yield Violation(where, 0, "another user than root")


def baseline_violations(spec: Mapping[str, Any]) -> Iterator[Violation]:
    """What a patch of a pod's spec sets against the baseline, with paths below the spec."""
    allowed = load_defaults().pod_security
    for name in _HOST_NAMESPACES:
        if spec.get(name):
            yield Violation(name, spec[name], "no host namespace")
    for index, volume in enumerate(_mappings(spec.get("volumes"))):
        if volume.get("hostPath") is not None:
            path = f"volumes[{index}].hostPath"
            yield Violation(path, volume["hostPath"], "no directory of the node")
    yield from _of_context(_mapping(spec.get("securityContext")), "securityContext", allowed)
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(_mappings(spec.get(kind))):
            yield from _of_container(container, f"{kind}[{index}]", allowed)


def _of_container(
    container: Mapping[str, Any], path: str, allowed: PodSecurity
) -> Iterator[Violation]:
    context, where = _mapping(container.get("securityContext")), f"{path}.securityContext"
    if context.get("privileged"):
        yield Violation(f"{where}.privileged", True, "no privileged container")
    added = _mapping(context.get("capabilities")).get("add")
    for capability in added if isinstance(added, list) else []:
        if not _is_one_of(capability, allowed.capabilities):
            yield Violation(f"{where}.capabilities.add", capability, "no further capability")
    if context.get("procMount") not in (None, "Default"):
        yield Violation(f"{where}.procMount", context["procMount"], "Default")
    yield from _of_context(context, where, allowed)
    for index, port in enumerate(_mappings(container.get("ports"))):
        if port.get("hostPort"):
            yield Violation(f"{path}.ports[{index}].hostPort", port["hostPort"], "no host port")
    yield from _of_hosts(container, path)


def _of_context(context: Mapping[str, Any], path: str, allowed: PodSecurity) -> Iterator[Violation]:
    for name in ("seccompProfile", "appArmorProfile"):
        kind = _mapping(context.get(name)).get("type")
        if kind not in (None, "RuntimeDefault", "Localhost"):
            yield Violation(f"{path}.{name}.type", kind, "RuntimeDefault or Localhost")
    options = _mapping(context.get("seLinuxOptions"))
    if options.get("type") not in (None, "", *allowed.selinux_types):
        expected = " or ".join(sorted(allowed.selinux_types))
        yield Violation(f"{path}.seLinuxOptions.type", options["type"], expected)
    for name in ("user", "role"):
        if options.get(name):
            yield Violation(f"{path}.seLinuxOptions.{name}", options[name], "none")
    for index, sysctl in enumerate(_mappings(context.get("sysctls"))):
        if not _is_one_of(sysctl.get("name"), allowed.sysctls):
            yield Violation(f"{path}.sysctls[{index}].name", sysctl.get("name"), "a safe sysctl")
    if _mapping(context.get("windowsOptions")).get("hostProcess"):
        yield Violation(f"{path}.windowsOptions.hostProcess", True, "no host process")


def _of_hosts(container: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """Probes and hooks reach the pod itself and no other host."""
    hooks = _mapping(container.get("lifecycle"))
    handlers = {name: container.get(name) for name in _PROBES}
    handlers |= {f"lifecycle.{name}": hooks.get(name) for name in _HOOKS}
    for name, handler in handlers.items():
        for action in ("httpGet", "tcpSocket"):
            host = _mapping(_mapping(handler).get(action)).get("host")
            if host:
                yield Violation(f"{path}.{name}.{action}.host", host, "no host: the pod itself")


def _is_one_of(value: object, allowed: Collection[str]) -> bool:
    return isinstance(value, str) and value in allowed


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [_mapping(item) for item in value] if isinstance(value, list) else []
