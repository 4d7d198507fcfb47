"""LimitRange: defaults that it fills in, and containers that it refuses.

Source: Kubernetes plugin/pkg/admission/limitranger/admission.go, and SetDefaults_LimitRangeItem in
pkg/apis/core/v1/defaults.go.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.api_server.fake_api import FakeApi
from tests.support.production.resources import amounts, container_limits, container_requests
from tonnage.kube.kinds import LIMIT_RANGES
from tonnage.kube.protocol import Object


def limit_range(
    namespace: str = "chat", kind: str = "Container", **limits: Mapping[str, str]
) -> Object:
    """Limits of the containers or pods of a namespace, as `max={"memory": "8Gi"}`, `min`,
    `default`, `defaultRequest`, with the defaults that the API server adds."""
    item: dict[str, Any] = {"type": kind, **limits}
    if kind == "Container":
        item["default"] = {**limits.get("max", {}), **limits.get("default", {})}
        asked = {**limits.get("min", {}), **item["default"], **limits.get("defaultRequest", {})}
        item["defaultRequest"] = asked
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": namespace},
        "spec": {"limits": [item]},
    }


def fill_in_limits(api: FakeApi, pod: Object) -> None:
    """Give each container the defaults that it lacks."""
    for limit in _limits(api, pod):
        default, asked = limit.get("default", {}), limit.get("defaultRequest", {})
        for container in pod["spec"]["containers"]:
            resources = container.setdefault("resources", {})
            has = {**resources.get("limits", {}), **resources.get("requests", {})}
            further = {name: text for name, text in asked.items() if name not in has}
            if further:
                resources["requests"] = {**further, **resources.get("requests", {})}
            if default:
                resources["limits"] = {**default, **resources.get("limits", {})}


def find_excess(pod: Object) -> str | None:
    """Why the pod is invalid now: a container asks for more than its limit."""
    for index, container in enumerate(pod["spec"]["containers"]):
        resources = container.get("resources", {})
        limits = resources.get("limits", {})
        for name, text in resources.get("requests", {}).items():
            if name in limits and amounts({name: text})[name] > amounts(limits)[name]:
                return (
                    f"spec.containers[{index}].resources.requests: Invalid value: {text!r}: must be"
                    f" less than or equal to {name} limit of {limits[name]}"
                ).replace("'", '"')
    return None


def refuse_by_limit_range(api: FakeApi, pod: Object) -> str | None:
    """Why a container exceeds a limit of its namespace; several reasons in brackets."""
    errors = [
        error
        for limit in _limits(api, pod)
        for container in pod["spec"]["containers"]
        for error in _errors(limit, container)
    ]
    if not errors:
        return None
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def _limits(api: FakeApi, pod: Object) -> Iterator[Mapping[str, Any]]:
    for body in api.objects(LIMIT_RANGES):
        if body["metadata"]["namespace"] == pod["metadata"]["namespace"]:
            yield from body["spec"]["limits"]


def _errors(limit: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[str]:
    requests, limits = container_requests(container), container_limits(container)
    resources = container.get("resources", {})
    for name, text in limit.get("min", {}).items():
        least, usage = amounts({name: text})[name], f"minimum {name} usage per Container is {text}"
        if name not in requests:
            yield f"{usage}.  No request is specified"
        elif requests[name] < least:
            yield f"{usage}, but request is {_stated(resources, 'requests', name)}"
    for name, text in limit.get("max", {}).items():
        most, usage = amounts({name: text})[name], f"maximum {name} usage per Container is {text}"
        if name not in limits:
            yield f"{usage}.  No limit is specified"
        elif limits[name] > most:
            yield f"{usage}, but limit is {_stated(resources, 'limits', name)}"
        elif requests[name] > most:
            yield f"{usage}, but request is {_stated(resources, 'requests', name)}"


def _stated(resources: Mapping[str, Any], field: str, name: str) -> str:
    return str({**resources.get("limits", {}), **resources.get(field, {})}[name])
