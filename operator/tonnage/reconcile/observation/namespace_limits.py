"""What the ResourceQuotas, the LimitRanges and the labels of a namespace allow its pods.

The API server refuses a pod that exceeds them, so a pool on which pods would exceed them carries no
further replica. The input may be hostile: what cannot be read does not limit.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.fleet.nodes.affinity import Expression, read_expression
from tonnage.fleet.nodes.amounts import read_all_amounts
from tonnage.fleet.nodes.pod import effective_limits, effective_requests, read_other_requests
from tonnage.informers.owners import ANY_OWNER
from tonnage.kube.kinds import LIMIT_RANGES, NAMESPACES, RESOURCE_QUOTAS
from tonnage.kube.kinds import PODS as POD_KIND
from tonnage.kube.protocol import Kind, Object
from tonnage.placement.namespace import (
    PODS,
    LimitRangeItem,
    LimitType,
    NamespaceLimits,
    PodSecurityLevel,
    Quota,
)
from tonnage.reconcile.key import Key

_EVERY_POD: Final = frozenset({"NotTerminating", "NotBestEffort"})
"""Scopes that match every pod of a model: it requests CPU, and has no deadline."""

_BY_PRIORITY: Final = "PriorityClass"
_KEY: Final = re.compile(r"(?:(requests|limits)\.)?([A-Za-z0-9./_-]{1,316})")
_PLAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources that a quota may name without `requests.`."""

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"


def read_limits(
    owned: Callable[[Kind, tuple[str, str]], list[Object]],
    lookup: Callable[[Kind, str | None, str], Object | None],
    key: Key,
) -> NamespaceLimits:
    """What the namespace of an object allows, as far as the operator may read it. `owned` and
    `lookup` read the cache, as ObjectCache describes them."""
    every_owner = key.namespace, ANY_OWNER
    quotas = read_quotas(owned(RESOURCE_QUOTAS, every_owner))
    return NamespaceLimits(
        quotas,
        read_limit_ranges(owned(LIMIT_RANGES, every_owner)),
        read_pod_security(lookup(NAMESPACES, None, key.namespace)),
        tuple(sorted(sum_usage(owned(POD_KIND, key)).items())) if quotas else (),
    )


def sum_usage(pods: Iterable[Object]) -> Mapping[str, int]:
    """What these pods use of quotas, by the keys of quotas. A pod counts from its creation on,
    whether or not it has a node."""
    total: Counter[str] = Counter()
    for pod in pods:
        spec = as_mapping(pod.get("spec"))
        others = read_other_requests(spec)  # with the overhead of a RuntimeClass
        requests = effective_requests(spec, _read_amounts) | {
            "cpu": others.cpu,
            "memory": others.memory,
            "ephemeral-storage": others.storage,
        }
        limits = effective_limits(spec, _read_amounts)
        total.update({f"requests.{name}": amount for name, amount in requests.items()})
        total.update({f"limits.{name}": amount for name, amount in limits.items()})
        total[PODS] += 1
    return total


def _read_amounts(quantities: object) -> dict[str, int]:
    return dict(read_all_amounts(quantities))


def read_quotas(bodies: Iterable[Object]) -> tuple[Quota, ...]:
    """The quotas for pods, by name and resource.

    A quota for pods that no model has (a scope) is left out, and so is one without a status: the
    quota controller has not counted yet.
    """
    quotas = [quota for body in bodies for quota in _read_quota(body)]
    return tuple(sorted(quotas, key=lambda quota: (quota.name, quota.key)))


def _read_quota(body: Object) -> Iterable[Quota]:
    spec, status = as_mapping(body.get("spec")), as_mapping(body.get("status"))
    selector = as_sequence(as_mapping(spec.get("scopeSelector")).get("matchExpressions"))
    expressions = [as_mapping(each) for each in selector]
    scopes = [*as_sequence(spec.get("scopes")), *(each.get("scopeName") for each in expressions)]
    if any(scope not in (*_EVERY_POD, _BY_PRIORITY) for scope in scopes):
        return
    priority = tuple(
        read_expression(each) for each in expressions if each.get("scopeName") == _BY_PRIORITY
    )
    if _BY_PRIORITY in as_sequence(spec.get("scopes")):
        priority = (*priority, Expression(_BY_PRIORITY, "Exists"))
    hard, used = (dict(read_all_amounts(status.get(part))) for part in ("hard", "used"))
    for written, most in hard.items():
        match = _KEY.fullmatch(written)
        if match is None:
            continue
        kind, resource = match.groups()
        if written == f"count/{PODS}":
            resource = PODS
        if kind is not None or resource in _PLAIN or resource == PODS:
            name = str(body["metadata"]["name"])
            yield Quota(name, resource, most, used.get(written, 0), kind == "limits", priority)


def read_limit_ranges(bodies: Iterable[Object]) -> tuple[LimitRangeItem, ...]:
    """The items of the LimitRanges of a namespace that concern pods, by name of the LimitRange."""
    return tuple(
        item
        for body in sorted(bodies, key=lambda body: str(body["metadata"]["name"]))
        for raw in as_sequence(as_mapping(body.get("spec")).get("limits"))
        for item in _read_item(str(body["metadata"]["name"]), as_mapping(raw))
    )


def _read_item(name: str, raw: Mapping[str, Any]) -> Iterable[LimitRangeItem]:
    if raw.get("type") in list(LimitType):
        yield LimitRangeItem(
            name,
            LimitType(raw["type"]),
            min=read_all_amounts(raw.get("min")),
            max=read_all_amounts(raw.get("max")),
            default=read_all_amounts(raw.get("default")),
            default_request=read_all_amounts(raw.get("defaultRequest")),
            max_limit_request_ratio=read_all_amounts(
                raw.get("maxLimitRequestRatio"), in_thousandths=True
            ),
        )


def read_pod_security(namespace: Object | None) -> PodSecurityLevel:
    """The standard that a Namespace enforces; a Namespace without the label enforces that of the
    API server's configuration, which is not known and by default `privileged`."""
    labels = as_mapping(as_mapping((namespace or {}).get("metadata")).get("labels"))
    level = labels.get(_ENFORCE)
    if level is None:
        return PodSecurityLevel.PRIVILEGED
    # The API server takes an unknown level as restricted.
    known = level in list(PodSecurityLevel)
    return PodSecurityLevel(level) if known else PodSecurityLevel.RESTRICTED
