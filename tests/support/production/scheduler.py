"""The scheduler of a cluster on the API in memory, as small as can be and deterministic.

It tries nodes by the filters of kube-scheduler, in their order, and says why none suits in its
words. Source: Kubernetes pkg/scheduler/framework/types.go (FitError) and framework/plugins.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.support.api_server.fake_api import FakeApi
from tests.support.fleets.node_affinity import admits
from tests.support.production.claims import has_unreachable_volume, unbound_claim
from tests.support.production.resources import Amounts, amounts, has_finished, requests_of
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import format_time

Arrange = Callable[[list[Object]], None]

_INSTALLED: Final = (None, "", "default-scheduler", "volcano")
"""The schedulers that pods may name; nothing tries the pods of others."""
_HEAD: Final = "0/{} nodes are available:"
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"


@dataclass(frozen=True)
class _Verdict:
    """Why a node does not suit; `resolvable`: it would, if other pods ended."""

    reasons: tuple[str, ...]
    resolvable: bool = False


def keep_order(items: list[Object]) -> None:
    """By namespace and name."""


def schedule_pods(api: FakeApi, arrange: Arrange = keep_order) -> None:
    """Bind each waiting pod to the first node that suits it.

    `arrange` puts pods and nodes into the order in which they have their turn.
    """
    pods, nodes = api.objects(PODS), api.objects(NODES)
    arrange(pods)
    arrange(nodes)
    free = {node["metadata"]["name"]: amounts(node["status"]["allocatable"]) for node in nodes}
    for pod in pods:
        if pod["spec"].get("nodeName") in free and not has_finished(pod):
            take(free[pod["spec"]["nodeName"]], requests_of(pod))
    for pod in pods:
        is_tried = pod["spec"].get("schedulerName") in _INSTALLED
        if is_tried and pod["spec"].get("nodeName") is None and not has_finished(pod):
            _schedule(api, pod, nodes, free)


def _schedule(
    api: FakeApi, pod: Object, nodes: Sequence[Object], free: Mapping[str, Amounts]
) -> None:
    requests, why = requests_of(pod), unbound_claim(api, pod)
    if why is not None:
        # No node was looked at, so that no plugin knows of one on which preemption would help.
        _refuse(api, pod, f"{_HEAD.format(len(nodes))} {why}. not found")
        return
    verdicts = []
    for node in nodes:
        name = node["metadata"]["name"]
        verdict = _filter(node, pod, requests, free[name])
        if not verdict.reasons and has_unreachable_volume(api, pod, node):
            verdict = _Verdict(("node(s) didn't match PersistentVolume's node affinity",))
        if not verdict.reasons:
            take(free[name], requests)
            _bind(api, pod, name)
            return
        verdicts.append(verdict)
    _refuse(api, pod, _fit_error(verdicts))


def suits(node: Object, pod: Object) -> bool:
    """Whether the node would take the pod if there were no other."""
    free = amounts(node["status"]["allocatable"])
    return not _filter(node, pod, requests_of(pod), free).reasons


def _bind(api: FakeApi, pod: Object, node: str) -> None:
    pod["spec"]["nodeName"] = node
    condition = {"type": "PodScheduled", "status": "True"}
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{**condition, "lastTransitionTime": format_time(api.now)}],
    }
    api.put(PODS, pod, manager="scheduler")


def _refuse(api: FakeApi, pod: Object, message: str) -> None:
    """A condition's time is that of its last change of status."""
    before: Object = next(iter(pod["status"].get("conditions", [])), {})
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "lastTransitionTime": before.get("lastTransitionTime") or format_time(api.now),
        "reason": "Unschedulable",
        "message": message,
    }
    status = {"phase": "Pending", "conditions": [condition]}
    if pod["status"] != status:
        api.set_status(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], status)


def _filter(node: Object, pod: Object, requests: Amounts, free: Amounts) -> _Verdict:
    """All reasons of the first filter that the node does not pass."""
    tolerated = pod["spec"].get("tolerations", [])
    if node["spec"].get("unschedulable"):
        return _Verdict(("node(s) were unschedulable",))
    taints = [taint for taint in node["spec"].get("taints", []) if taint["effect"] != "PreferNo"]
    if any(not any(_tolerates(one, taint) for one in tolerated) for taint in taints):
        return _Verdict(("node(s) had untolerated taint(s)",))
    if not admits(node["metadata"]["labels"], pod["spec"]):
        return _Verdict(("node(s) didn't match Pod's node affinity/selector",))
    lacking = sorted((name for name in requests if requests[name] > free[name]), key=_native_first)
    pods = ("Too many pods",) if free["pods"] < 1 else ()
    allocatable = amounts(node["status"]["allocatable"])
    return _Verdict(
        (*pods, *(f"Insufficient {name}" for name in lacking)),
        resolvable=all(requests[name] <= allocatable[name] for name in lacking),
    )


def _native_first(resource: str) -> tuple[bool, str]:
    return "/" in resource, resource


def take(free: Amounts, requests: Amounts) -> None:
    """The pod with these requests takes them of what is free on a node."""
    free.subtract(requests)
    free["pods"] -= 1


def _fit_error(verdicts: Sequence[_Verdict]) -> str:
    """The message of a FitError, with those of the plugins that look for another way after it."""
    head = _HEAD.format(len(verdicts))
    reasons = Counter(reason for verdict in verdicts for reason in verdict.reasons)
    resolvable = sum(verdict.resolvable for verdict in verdicts)
    outcomes = Counter({_NO_VICTIMS: resolvable, _NOT_HELPFUL: len(verdicts) - resolvable})
    preemption = f"preemption: {head} {_histogram(+outcomes)}"
    return f"{head} {_histogram(reasons)} no new claims to deallocate, {preemption}"


def _histogram(counts: Mapping[str, int]) -> str:
    return f"{', '.join(sorted(f'{count} {reason}' for reason, count in counts.items()))}."


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    same_value = toleration.get("operator") == "Exists" or toleration.get("value") == taint.get(
        "value"
    )
    return toleration.get("key") in (None, taint["key"]) and same_value
