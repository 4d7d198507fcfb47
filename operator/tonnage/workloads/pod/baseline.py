"""The Pod Security Standard "baseline" on what a patch sets.

The operator's own pods meet it, so that a merged template meets it if each patch does.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.engines.defaults import PodSecurity, load_defaults

CONTAINER_LISTS: Final = ("containers", "initContainers")

_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_HOOKS: Final = ("postStart", "preStop")
_HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")


@dataclass(frozen=True, slots=True)
class Violation:
    """A field, its value, and what the standard asks for."""

    path: str
    value: object
    want: str


def violations(spec: Mapping[str, Any]) -> Iterator[Violation]:
    """What a patch of a pod's spec sets against the standard, with paths below the spec."""
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
