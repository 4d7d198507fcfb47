"""Whether the LimitRanges of a namespace admit a pod.

As the API server does, this fills in the defaults, then validates the pod, then checks minima,
maxima and ratios. Source: Kubernetes v1.35.4, plugin/pkg/admission/limitranger/admission.go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping
from tonnage.fleet.nodes.amounts import read_all_amounts
from tonnage.fleet.nodes.pod import effective_requests
from tonnage.placement.namespace import LimitRangeItem, LimitType
from tonnage.workloads.pod.pod_security import CONTAINER_LISTS

_GIB: Final = 2**30
_BYTES: Final = frozenset({"memory", "ephemeral-storage"})
_THOUSAND: Final = 1000

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


def _refusals(spec: Mapping[str, Any], items: Sequence[LimitRangeItem]) -> Iterator[str]:
    containers = [_read(one, kind) for kind in CONTAINER_LISTS for one in spec.get(kind) or []]
    for item in items:
        for index, container in enumerate(containers):
            containers[index] = filled = _with_defaults(container, item)
            yield from _foreign_devices(container, filled, item)
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
    container: _Container, filled: _Container, item: LimitRangeItem
) -> Iterator[str]:
    """A default of devices is added to every container, also to those that use none or others."""
    for name, amount in filled.limits.items():
        if "/" in name and amount and name not in container.limits:
            yield (
                f"LimitRange {item.name} adds {_format(name, amount)} to {container.what}, which"
                f" uses none; remove {name} from its default and its max"
            )


def _invalid_requests(container: _Container, items: Sequence[LimitRangeItem]) -> Iterator[str]:
    """A default limit below the request of the container makes the pod invalid."""
    for name, limit in container.limits.items():
        if container.requests.get(name, 0) > limit:
            names = sorted({item.name for item in items if name in dict(item.default)})
            yield (
                f"LimitRange {', '.join(names)} limits {name} of {container.what} to"
                f" {_format(name, limit)} by default, and it requests"
                f" {_format(name, container.requests[name])}; {_advise(name, 'default')}"
            )


def _check(container: _Container, item: LimitRangeItem) -> Iterator[str]:
    each = f"LimitRange {item.name}: {container.what}"
    requests, limits = container.requests, container.limits
    for name, least in item.min:
        requested = requests.get(name, 0)
        if requested < least:
            yield (
                f"{each} requests {_format(name, requested)}, less than the minimum of"
                f" {_format(name, least)}; {_advise(name, 'min', more=True)}"
            )
    for name, most in item.max:
        limit = limits.get(name)
        if limit is None:
            yield f"{each} has no limit of {name}, which a maximum requires; {_advise_limit(name)}"
        elif limit > most:
            yield (
                f"{each} may use {_format(name, limit)}, more than the maximum of"
                f" {_format(name, most)}; {_advise(name, 'max')}"
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


def _format(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount / _THOUSAND:g} CPUs"
    if name in _BYTES:
        return f"{amount / _GIB:.4g} GiB of {name.replace('-', ' ')}"
    return f"{amount} {name}"
