"""ResourceQuota, as its admission plugin counts and refuses.

Source: k8s.io/apiserver pkg/admission/plugin/resourcequota/controller.go, and
pkg/quota/v1/evaluator/core of Kubernetes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from tests.support.api_server.fake_api import FakeApi
from tests.support.production.resources import (
    Amounts,
    amounts,
    container_limits,
    container_requests,
    format_quantity,
    has_finished,
    limits_of,
    requests_of,
)
from tonnage.kube.kinds import PODS, RESOURCE_QUOTAS, SERVICES
from tonnage.kube.protocol import Kind, Object

_STATED: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Resources that every container has to state where a quota limits them."""


def resource_quota(
    hard: Mapping[str, object], name: str = "quota", namespace: str = "chat"
) -> Object:
    """A quota of a namespace, as `{"requests.amd.com/gpu": 0}`, `{"services": 0}`."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {key: str(value) for key, value in hard.items()}},
    }


def refuse_by_quota(api: FakeApi, kind: Kind, body: Object) -> str | None:
    """Why a new object exceeds a quota of its namespace; None where it does not."""
    namespace = body["metadata"].get("namespace")
    for quota in api.objects(RESOURCE_QUOTAS):
        if quota["metadata"]["namespace"] != namespace:
            continue
        name, hard = quota["metadata"]["name"], amounts(quota["spec"]["hard"])
        if kind == PODS and (missing := _missing(body, hard)):
            return f"failed quota: {name}: must specify {missing}"
        requested = {key: usage for key, usage in _usage(kind, body).items() if key in hard}
        used = _sum(_usage(kind, each) for each in _counted(api, kind, namespace))
        exceeded = sorted(key for key in requested if used[key] + requested[key] > hard[key])
        if exceeded:
            return (
                f"exceeded quota: {name}, requested: {_print(requested, exceeded)},"
                f" used: {_print(used, exceeded)}, limited: {_print(hard, exceeded)}"
            )
    return None


def count_quotas(api: FakeApi) -> None:
    """Write the status of all quotas, as the quota controller does."""
    for quota in api.objects(RESOURCE_QUOTAS):
        namespace, hard = quota["metadata"]["namespace"], quota["spec"]["hard"]
        used: Amounts = Counter()
        for kind in (PODS, SERVICES):
            used.update(_sum(_usage(kind, each) for each in _counted(api, kind, namespace)))
        counted = {key: format_quantity(used[key]) for key in hard}
        status = {"hard": hard, "used": counted}
        if quota.get("status") != status:
            api.put(RESOURCE_QUOTAS, {**quota, "status": status})


def _counted(api: FakeApi, kind: Kind, namespace: str | None) -> Iterable[Object]:
    return (
        body
        for body in api.objects(kind)
        if body["metadata"].get("namespace") == namespace
        and not (kind == PODS and has_finished(body))
    )


def _usage(kind: Kind, body: Object) -> Amounts:
    group = f".{kind.group}" if kind.group else ""
    usage: Amounts = Counter({f"count/{kind.plural}{group}": 1})
    if kind == SERVICES:
        usage["services"] = 1
    if kind == PODS:
        usage["pods"] = 1
        for name, amount in requests_of(body).items():
            usage[f"requests.{name}"] = amount
            if name in ("cpu", "memory", "ephemeral-storage"):
                usage[name] = amount
        usage.update({f"limits.{name}": amount for name, amount in limits_of(body).items()})
    return usage


def _missing(pod: Object, hard: Mapping[str, object]) -> str:
    """The resources that a container does not state, as the plugin lists them."""
    missing: dict[str, list[str]] = {}
    for container in pod["spec"]["containers"]:
        requests, limits = container_requests(container), container_limits(container)
        for key in _STATED:
            stated = limits if key.startswith("limits.") else requests
            if key in hard and key.rpartition(".")[2] not in stated:
                missing.setdefault(key, []).append(container["name"])
    return "; ".join(f"{key} for: {','.join(names)}" for key, names in sorted(missing.items()))


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = Counter()
    for part in parts:
        total.update(part)
    return total


def _print(usage: Mapping[str, Fraction | int], keys: Iterable[str]) -> str:
    return ",".join(f"{key}={format_quantity(usage[key])}" for key in keys)
