"""Whether LimitRanges and ResourceQuotas of a namespace admit a pod, and what it uses of quotas.

As the API server does, this fills in the defaults of LimitRanges, then validates the pod, then
checks minima, maxima and ratios, then quotas. Source: Kubernetes v1.35.4,
plugin/pkg/admission/limitranger/admission.go and pkg/quota/v1/evaluator/core/pods.go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping
from tonnage.fleet.nodes.amounts import read_all_amounts
from tonnage.fleet.nodes.pod import effective_requests
from tonnage.placement.namespace import (
    PODS,
    LimitRangeItem,
    LimitType,
    Quota,
    format_amount,
)
from tonnage.workloads.pod.pod_security import CONTAINER_LISTS

_THOUSAND: Final = 1000
_STATED: Final = ("cpu", "memory")
"""Resources that each container has to state where a quota counts them."""

_Resources = dict[str, int]
"""Amounts by resource."""


@dataclass(frozen=True, slots=True)
class _Container:
    """A container with its requests and limits, or a pod with the sums of its containers. `kind` is
    the list that it is in, and `restart_policy` its own."""

    what: str
    requests: _Resources
    limits: _Resources
    kind: str = ""
    restart_policy: str | None = None


def explain_limit_ranges(spec: Mapping[str, Any], items: Sequence[LimitRangeItem]) -> str | None:
    """Why the items of LimitRanges refuse a pod of this spec, None where they admit it."""
    return next(_refusals(spec, items), None) if items else None


def explain_quotas(
    spec: Mapping[str, Any], items: Sequence[LimitRangeItem], quotas: Sequence[Quota]
) -> str | None:
    """Why quotas refuse a pod of this spec in a namespace with these items of LimitRanges, even
    where no other pod uses them; None where they admit it."""
    if not quotas:
        return None
    containers = _fill_in(spec, items)
    usage = _usage_of(containers)
    for quota in quotas:
        if quota.resource in _STATED:
            for container in containers:
                stated = container.limits if quota.of_limits else container.requests
                if quota.resource not in stated:
                    return (
                        f"ResourceQuota {quota.name} counts {quota.key}, which {container.what}"
                        f" does not set; set resources.{quota.key} of it in spec.podTemplate"
                    )
        if usage.get(quota.key, 0) > quota.left:
            return quota.explain(usage[quota.key])
    return None


def quota_usage(spec: Mapping[str, Any], items: Sequence[LimitRangeItem]) -> Mapping[str, int]:
    """What a pod of this spec uses of quotas, by their keys."""
    return _usage_of(_fill_in(spec, items))


def _usage_of(containers: Sequence[_Container]) -> dict[str, int]:
    pod = _whole_pod(containers)
    requests = {f"requests.{name}": amount for name, amount in pod.requests.items()}
    return requests | {f"limits.{name}": amount for name, amount in pod.limits.items()} | {PODS: 1}


def _fill_in(spec: Mapping[str, Any], items: Sequence[LimitRangeItem]) -> list[_Container]:
    containers = [_read(one, kind) for kind in CONTAINER_LISTS for one in spec.get(kind) or []]
    for item in items:
        containers = [_with_defaults(container, item) for container in containers]
    return containers


def _refusals(spec: Mapping[str, Any], items: Sequence[LimitRangeItem]) -> Iterator[str]:
    unfilled, containers = _fill_in(spec, ()), _fill_in(spec, items)
    for before, after in zip(unfilled, containers, strict=True):
        yield from _foreign_devices(before, after, items)
    for container in containers:
        yield from _invalid_requests(container, items)
    for item in items:
        of_item = containers if item.type is LimitType.CONTAINER else [_whole_pod(containers)]
        for container in of_item:
            yield from _check(container, item)


def _read(container: Mapping[str, Any], kind: str) -> _Container:
    resources = container.get("resources") or {}
    limits = dict(read_all_amounts(resources.get("limits")))
    # The API server copies a limit without a request to the request.
    requests = limits | dict(read_all_amounts(resources.get("requests")))
    what = f"container {container.get('name')}"
    return _Container(what, requests, limits, kind, container.get("restartPolicy"))


def _with_defaults(container: _Container, item: LimitRangeItem) -> _Container:
    if item.type is not LimitType.CONTAINER:
        return container
    return replace(
        container,
        requests=dict(item.default_request) | container.requests,
        limits=dict(item.default) | container.limits,
    )


def _foreign_devices(
    before: _Container, after: _Container, items: Sequence[LimitRangeItem]
) -> Iterator[str]:
    """A default of devices is added to every container, also to those that use none or others."""
    for name, amount in after.limits.items():
        if "/" in name and amount and name not in before.limits:
            yield (
                f"LimitRange {_with_default(name, items)} adds {format_amount(name, amount)} to"
                f" {before.what}, which uses none; remove {name} from its default and its max"
            )


def _with_default(name: str, items: Sequence[LimitRangeItem]) -> str:
    """The LimitRanges that have a default of a resource."""
    return ", ".join(sorted({item.name for item in items if name in dict(item.default)}))


def _invalid_requests(container: _Container, items: Sequence[LimitRangeItem]) -> Iterator[str]:
    """A default limit below the request of the container makes the pod invalid."""
    for name, limit in container.limits.items():
        if container.requests.get(name, 0) > limit:
            yield (
                f"LimitRange {_with_default(name, items)} limits {name} of {container.what} to"
                f" {format_amount(name, limit)} by default, and it requests"
                f" {format_amount(name, container.requests[name])}; {_advise(name, 'default')}"
            )


def _check(container: _Container, item: LimitRangeItem) -> Iterator[str]:
    each = f"LimitRange {item.name}: {container.what}"
    requests, limits = container.requests, container.limits
    for name, least in item.min:
        requested = requests.get(name, 0)
        if requested < least:
            yield (
                f"{each} requests {format_amount(name, requested)}, less than the minimum of"
                f" {format_amount(name, least)}; {_advise(name, 'min', more=True)}"
            )
    for name, most in item.max:
        limit = limits.get(name)
        if limit is None:
            yield f"{each} has no limit of {name}, which a maximum requires; {_advise_limit(name)}"
        elif limit > most:
            yield (
                f"{each} may use {format_amount(name, limit)}, more than the maximum of"
                f" {format_amount(name, most)}; {_advise(name, 'max')}"
            )
    for name, ratio in item.max_limit_request_ratio:
        limit, requested = limits.get(name), requests.get(name, 0)
        if not limit or not requested:
            yield (
                f"{each} has no limit of {name}, which a ratio of limit and request requires;"
                f" {_advise_limit(name)}"
            )
        elif limit * _THOUSAND > requested * ratio:
            yield (
                f"{each} has a limit of {name} of {limit / requested:.3g} times its request, more"
                f" than {ratio / _THOUSAND:g}; {_advise(name, 'maxLimitRequestRatio')}"
            )


def _whole_pod(containers: Sequence[_Container]) -> _Container:
    def total(resources: Callable[[_Container], _Resources]) -> _Resources:
        spec = {
            kind: [
                {
                    "restartPolicy": container.restart_policy,
                    "resources": {"requests": resources(container)},
                }
                for container in containers
                if container.kind == kind
            ]
            for kind in CONTAINER_LISTS
        }
        return effective_requests(spec, lambda quantities: dict(as_mapping(quantities)))

    return _Container("the pod", total(lambda one: one.requests), total(lambda one: one.limits))


def _advise(name: str, field: str, *, more: bool = False) -> str:
    if "/" in name:
        return f"change {field} of the LimitRange, or spec.placement"
    change = "raise" if more else "lower"
    where = "of the containers in spec.podTemplate"
    return f"{change} resources.requests.{name} {where}, or change {field} of the LimitRange"


def _advise_limit(name: str) -> str:
    return f"set resources.limits.{name} of the containers in spec.podTemplate"
