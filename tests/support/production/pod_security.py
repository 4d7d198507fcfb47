"""Pod Security admission: what the standards `baseline` and `restricted` refuse of model pods.

Source: k8s.io/pod-security-admission admission/admission.go and policy/.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.support.api_server.fake_api import FakeApi
from tonnage.kube.kinds import NAMESPACES
from tonnage.kube.protocol import NotFoundError, Object

ENFORCE: Final = "pod-security.kubernetes.io/enforce"


def enforced_namespace(level: str, name: str = "chat") -> Object:
    """A namespace that enforces `baseline` or `restricted`."""
    metadata = {"name": name, "labels": {ENFORCE: level}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def refuse_by_pod_security(api: FakeApi, pod: Object) -> str | None:
    """Why the standard of its namespace refuses the pod."""
    try:
        namespace = api.object(NAMESPACES, None, pod["metadata"]["namespace"])
    except NotFoundError:
        return None
    level = namespace["metadata"].get("labels", {}).get(ENFORCE, "privileged")
    details = [detail for check in _CHECKS[level] for detail in check(pod["spec"])]
    return f'violates PodSecurity "{level}:latest": {", ".join(details)}' if details else None


def _privilege_escalation(spec: Mapping[str, Any]) -> Iterator[str]:
    names = [
        name
        for name, context in _contexts(spec)
        if context.get("allowPrivilegeEscalation") is not False
    ]
    if names:
        must = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({must})"


def _capabilities(spec: Mapping[str, Any]) -> Iterator[str]:
    names = [
        name
        for name, context in _contexts(spec)
        if "ALL" not in context.get("capabilities", {}).get("drop", [])
    ]
    if names:
        must = f'{_containers(names)} must set securityContext.capabilities.drop=["ALL"]'
        yield f"unrestricted capabilities ({must})"


def _host_paths(spec: Mapping[str, Any]) -> Iterator[str]:
    names = [volume["name"] for volume in spec.get("volumes", []) if "hostPath" in volume]
    if names:
        volumes = ", ".join(f'"{name}"' for name in names)
        yield f"hostPath volumes ({'volume' if len(names) == 1 else 'volumes'} {volumes})"


def _non_root(spec: Mapping[str, Any]) -> Iterator[str]:
    of_pod = spec.get("securityContext", {}).get("runAsNonRoot")
    names = [name for name, context in _contexts(spec) if not context.get("runAsNonRoot", of_pod)]
    if names:
        must = f"pod or {_containers(names)} must set securityContext.runAsNonRoot=true"
        yield f"runAsNonRoot != true ({must})"


def _seccomp(spec: Mapping[str, Any]) -> Iterator[str]:
    of_pod = spec.get("securityContext", {}).get("seccompProfile")
    names = [name for name, context in _contexts(spec) if not context.get("seccompProfile", of_pod)]
    if names:
        must = f"pod or {_containers(names)} must set securityContext.seccompProfile.type to"
        yield f'seccompProfile ({must} "RuntimeDefault" or "Localhost")'


def _contexts(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for container in spec["containers"]:
        yield container["name"], container.get("securityContext", {})


def _containers(names: list[str]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"{'container' if len(names) == 1 else 'containers'} {listed}"


Check = Callable[[Mapping[str, Any]], Iterator[str]]
_CHECKS: Final[Mapping[str, tuple[Check, ...]]] = {
    "privileged": (),
    "baseline": (_host_paths,),
    "restricted": (_privilege_escalation, _capabilities, _host_paths, _non_root, _seccomp),
}
