"""What a cluster has come to, and what is wrong with it whatever it has come to.

Two runs end alike when `end_state` of both is equal: it keeps children, statuses and pods, and
leaves out only what differs between equal runs (uids, versions, times). In addition to that
comparison stand promises that no end breaks: `find_faults` reads them from the objects alone,
`find_unrest` lets the operator look once more.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.promise_book import find_overcommitted
from tests.support.fleets.promises import Sight
from tests.support.in_memory.controllers import serves
from tonnage.api.names import (
    ANNOTATION_RENDERED,
    ANNOTATION_RENDERED_FROM,
    INFERENCE_DEPLOYMENT,
    LABEL_MANAGED_BY,
    LABEL_OWNER,
    LABEL_PLACEMENT,
    MANAGED_BY,
)
from tonnage.kube.kinds import (
    COMPUTE_DOMAINS,
    INFERENCE_DEPLOYMENTS,
    INFERENCE_POOLS,
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object
from tonnage.workloads.registry import WORKLOAD_KINDS

if TYPE_CHECKING:
    from tests.support.in_memory.cluster import Cluster

CHILDREN: Final = (
    *(*WORKLOAD_KINDS, SERVICES, COMPUTE_DOMAINS),
    *(INFERENCE_POOLS, POD_DISRUPTION_BUDGETS, JOBS),
)
"""Kinds that the operator makes for an InferenceDeployment."""

KEPT: Final = (INFERENCE_DEPLOYMENTS, *CHILDREN, PODS)
"""Kinds that an end state tells of."""

_OF_ONE_RUN: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
)
_RECORDED_AT: Final = re.compile(r',"recordedAt":[0-9]+')
"""In a record of a template: a generation of the Deployment."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def end_state(api: FakeApi) -> Object:
    """What is stored, by kind and name, without what differs from run to run."""
    return end_state_of({kind: api.objects(kind) for kind in KEPT})


def end_state_of(objects: Mapping[Kind, Sequence[Object]]) -> Object:
    """The same of objects by kind, wherever they were read; pods are named by what they run."""
    owners = {
        body["metadata"]["uid"]: f"{kind.kind}/{body['metadata']['name']}"
        for kind in (INFERENCE_DEPLOYMENTS, *WORKLOAD_KINDS)
        for body in objects.get(kind, ())
    }
    pods = [pod for pod in objects.get(PODS, ()) if _label(pod, LABEL_OWNER)]
    return {
        f"{kind.kind}/{body['metadata']['name']}": _normalised(body, owners)
        for kind in (INFERENCE_DEPLOYMENTS, *CHILDREN)
        for body in objects.get(kind, ())
    } | {
        f"pods of {owner}": sorted(
            _pod_summary(pod) for pod in pods if _label(pod, LABEL_OWNER) == owner
        )
        for owner in {_label(pod, LABEL_OWNER) for pod in pods}
    }


def find_other_ends(api: FakeApi, reason: str, bystanders: Collection[str] = ()) -> list[str]:
    """Objects whose condition Ready has another reason than this; bystanders may have any."""
    ready_reasons = {
        body["metadata"]["name"]: condition["reason"]
        for body in api.objects(INFERENCE_DEPLOYMENTS)
        for condition in body.get("status", {}).get("conditions", [])
        if condition["type"] == "Ready"
    }
    return [
        f"{name} is {actual}, not {reason}"
        for name, actual in ready_reasons.items()
        if actual != reason and name not in bystanders
    ]


def find_faults(api: FakeApi) -> list[str]:
    """What is wrong at rest: children without a living owner, replicas that are there twice, GPUs
    that are held twice, statuses of an older spec. A sentence each."""
    objects = api.objects(INFERENCE_DEPLOYMENTS)
    return [
        *_find_orphans(api, objects),
        *_find_doubles([body for kind in WORKLOAD_KINDS for body in api.objects(kind)], objects),
        *find_overcommitted(Sight(api.objects(NODES), api.objects(PODS))),
        *_find_outdated(objects),
    ]


class ServingCount:
    """How many replicas of all objects answer, and the fewest there were since it was begun."""

    def __init__(self, api: FakeApi) -> None:
        pods = [pod for pod in api.objects(PODS) if _label(pod, LABEL_OWNER) and serves(pod)]
        self._ready = {pod["metadata"]["name"] for pod in pods}
        self.least = len(self._ready)
        api.listeners.append(self._note)

    def _note(self, kind: Kind, event_type: str, body: Object) -> None:
        if kind != PODS or not _label(body, LABEL_OWNER):
            return
        name = body["metadata"]["name"]
        if event_type != "DELETED" and serves(body):
            self._ready.add(name)
        else:
            self._ready.discard(name)
            self.least = min(self.least, len(self._ready))


async def find_unrest(cluster: "Cluster") -> list[str]:
    """What is still asked for where nothing is left to do: not one write, by the operator that is
    there nor by one begun anew, when each looks at everything again."""
    same = await find_writes_of_another_look(cluster)
    cluster.start_operator()
    anew = await find_writes_of_another_look(cluster)
    return [*same, *(f"begun anew: {what}" for what in anew)]


async def find_writes_of_another_look(cluster: "Cluster") -> list[str]:
    """What the operator asks for when it looks at everything once more; a sentence where it does,
    also where nothing comes of it."""
    calls, writes = len(cluster.api.calls), cluster.api.write_count
    await cluster.resync()
    if cluster.api.write_count == writes:
        return []
    changed = [f"{call.verb} {call.name}" for call in cluster.api.calls[calls:] if call.effective]
    return [f"unrest: {cluster.api.write_count - writes} writes at rest, effective: {changed}"]


def _find_orphans(api: FakeApi, objects: Iterable[Object]) -> Iterable[str]:
    """Ours by label, and not controlled by the living object of that name."""
    uids = {
        (body["metadata"]["namespace"], body["metadata"]["name"]): body["metadata"]["uid"]
        for body in objects
    }
    for kind in CHILDREN:
        for child in api.objects(kind):
            metadata = child["metadata"]
            owner = _label(child, LABEL_OWNER)
            if not owner and _label(child, LABEL_MANAGED_BY) != MANAGED_BY:
                continue  # somebody else's
            controllers = [
                (reference["kind"], reference["uid"])
                for reference in metadata.get("ownerReferences", [])
                if reference.get("controller")
            ]
            wanted = uids.get((metadata["namespace"], owner))
            if controllers != [(INFERENCE_DEPLOYMENT, wanted)]:
                yield f"orphan: {kind.kind} {metadata['name']}, controlled by {controllers}"


def _find_doubles(deployments: Sequence[Object], objects: Iterable[Object]) -> Iterable[str]:
    """Deployments of one placement, and more replicas than are wanted where all are ready."""
    for body in objects:
        name = body["metadata"]["name"]
        own = [child for child in deployments if _label(child, LABEL_OWNER) == name]
        placements = [_label(child, LABEL_PLACEMENT) for child in own]
        if len(set(placements)) < len(placements):
            yield f"double: {name} has several Deployments of one placement: {sorted(placements)}"
        wanted, asked = body.get("status", {}).get("desiredReplicas"), _replicas(own)
        if _is_ready(body) and wanted is not None and asked != wanted:
            yield f"double: {name} is Ready with {wanted} replicas, and {asked} are asked for"


def _find_outdated(objects: Iterable[Object]) -> Iterable[str]:
    for body in objects:
        generation = body["metadata"]["generation"]
        status = body.get("status", {})
        generations = {status.get("observedGeneration")} | {
            condition.get("observedGeneration") for condition in status.get("conditions", [])
        }
        if generations != {generation}:
            name = body["metadata"]["name"]
            yield f"outdated: status of {name} has generations {generations}, not {generation}"


def _replicas(deployments: Iterable[Object]) -> int:
    return sum(child["spec"]["replicas"] for child in deployments)


def _is_ready(body: Object) -> bool:
    conditions = body.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _label(body: Object, name: str) -> str:
    return str(body["metadata"].get("labels", {}).get(name, ""))


def _normalised(body: Object, owners: Mapping[str, str]) -> Object:
    """Without what differs between runs; times in messages are replaced."""
    normalised: Object = json.loads(_TIME.sub("then", json.dumps(body)))
    metadata = normalised["metadata"]
    # A digest of uids and times, too. What it is made of is kept; a wrong one shows as unrest.
    annotations = metadata.get("annotations", {})
    annotations.pop(ANNOTATION_RENDERED, None)
    if record := annotations.get(ANNOTATION_RENDERED_FROM):
        annotations[ANNOTATION_RENDERED_FROM] = _RECORDED_AT.sub("", record)
    for name in _OF_ONE_RUN:
        metadata.pop(name, None)
    for owner in metadata.get("ownerReferences", []):
        owner["uid"] = owners.get(owner["uid"], "gone")
    status = normalised.get("status", {})
    status.pop("observedGeneration", None)
    status.get("conditions", []).sort(key=lambda condition: str(condition["type"]))
    for condition in status.get("conditions", []):
        for name in ("lastTransitionTime", "lastUpdateTime", "observedGeneration"):
            condition.pop(name, None)
    return normalised


def _pod_summary(pod: Object) -> tuple[str, str, str]:
    """Its Deployment or ReplicaSet, the template that it runs, and whether it is ready."""
    owners = pod["metadata"].get("ownerReferences", [])
    conditions = pod.get("status", {}).get("conditions", [])
    ready = next((one["status"] for one in conditions if one["type"] == "Ready"), "")
    return (owners[0]["name"] if owners else "", _label(pod, "pod-template-hash"), ready)
