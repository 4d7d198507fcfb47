"""Specs tried one after the other on a cluster in memory, and what each must leave behind.

The end state is the spec's alone: whatever came before, it is that of a cluster where the spec is
the first. What counts of history, by design, and is therefore left out:

- Replicas keep the pool and the split that were chosen for the same model, memory and say of the
  user, though for another number, concurrency or typical length others would be taken (ADR 0019).
  Where those differ for that, nothing is compared; the account tells how often.
- A bad spec, or one for which there is no place, changes nothing of what runs but the number of
  replicas, where it requests fewer. After it Deployments, Service and pods are those of before, to
  the byte, or as many of the pods as are requested, and the conditions Accepted and Placed those of
  the spec alone. An InferencePool that is no longer asked for goes all the same.
- With capacity for only some of the replicas, what ran before goes on next to them; so it does
  where the API server or the scheduler refuses their pods.
- `rollout.paused` keeps what runs: its templates are those of before.
- `scaling.targets`: as no load is measured here, the number stays what it was (ADR 0053).
- `spec.strategy` of a Deployment belongs to the change that came last and stays until the next,
  and with it the digest of what was rendered.
- `status.lastReadyPlan` is the memory of what served: its generation, and where nothing is to
  serve, all of it.
- `spec.approvedPlan` is what the user of the walk answered; what runs already needs no approval.
"""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from tests.support.api_server.admission import RefusedByServerError, admit, without_nulls
from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster
from tests.support.in_memory.end_state import end_state, find_faults, find_unrest
from tests.support.in_memory.rollouts import TEMPLATE_HASH
from tests.support.specs.first_spec import give, new_cluster
from tests.support.specs.spec_walks import Spec, Walk
from tonnage.api.names import ANNOTATION_PLACED_FOR, ANNOTATION_RENDERED
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.kube.kinds import DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.digests import placement_digest

NAME: Final = "llama"
FLEET: Final = (MI300X, H100, {**L40S, "gpusPerNode": 8})
_RUNNING: Final = (DEPLOYMENTS, SERVICES, PODS)

Children = dict[str, list[Object]]
"""What serves, by kind."""

Place = tuple[str, int, int]
"""A pool, and the tensor-parallel and pipeline-parallel sizes of the replicas there."""


@dataclass(frozen=True, slots=True)
class Alone:
    """What a spec comes to on a cluster where it is the first."""

    outcome: str
    places: set[Place]
    judged: dict[str, tuple[str, str]]
    state: Object


class Campaign:
    """Takes walks, and keeps the account of what their specs came to."""

    def __init__(self) -> None:
        self.account: Counter[str] = Counter()
        self._alone: dict[str, Alone] = {}

    async def take(self, walk: Walk) -> None:
        """Try the specs one after the other. Raises AssertionError where one leaves a trace."""
        cluster = new_cluster(FLEET)
        for number, spec in enumerate(walk):
            self.account["transitions"] += number > 0
            await self._try(cluster, spec)
            assert find_faults(cluster.api) == []
        unrest = await find_unrest(cluster)
        if _judged(cluster)["Accepted"] == ("False", "ChildRefused"):
            # The child is tried again at each resync, which changes nothing.
            unrest = [line for line in unrest if not line.endswith("effective: []")]
        assert unrest == []

    async def _try(self, cluster: Cluster, spec: Spec) -> None:
        before = _children(cluster)
        try:
            stored = admit(spec)
        except RefusedByServerError:
            self.account["refused by the API server"] += 1
            await _let_through(cluster, spec, before)
            return
        await give(cluster, NAME, stored)
        alone = await self._run_alone(stored)
        self.account[alone.outcome] += 1
        if _may_stay(cluster, before) and _places(cluster) != alone.places:
            self.account["stays where it is"] += 1
            return
        _compare(alone, cluster, before, stored)

    async def _run_alone(self, spec: Spec) -> Alone:
        key = json.dumps(spec, sort_keys=True)
        if key not in self._alone:
            cluster = new_cluster(FLEET)
            await give(cluster, NAME, spec)
            self._alone[key] = Alone(
                _outcome(cluster), _places(cluster), _judged(cluster), _comparable(cluster)
            )
        return self._alone[key]


def _may_stay(cluster: Cluster, before: Children) -> bool:
    """Whether what runs was placed for just this: then it keeps its place (ADR 0019)."""
    try:
        wanted = placement_digest(parse_spec(cluster.inference_deployment(NAME)["spec"]))
    except InvalidSpecError:
        return False
    annotations = [body["metadata"]["annotations"] for body in before["Deployment"]]
    return wanted in [entry.get(ANNOTATION_PLACED_FOR) for entry in annotations]


def _places(cluster: Cluster) -> set[Place]:
    return {
        (placement["pool"], placement["tensorParallelSize"], placement["pipelineParallelSize"])
        for placement in cluster.status(NAME)["placements"]
    }


async def _let_through(cluster: Cluster, spec: Spec, before: Children) -> None:
    """What the API server refuses the operator refuses too, if it ever comes to see it: a CRD of
    another release may have stored it."""
    await give(cluster, NAME, without_nulls(spec))
    assert cluster.conditions(NAME)["Accepted"] == ("False", "InvalidSpec")
    _check_kept(before, _children(cluster), spec, "a bad spec has changed what runs")


def _compare(alone: Alone, cluster: Cluster, before: Children, spec: Spec) -> None:
    after, judged = _children(cluster), _judged(cluster)
    if alone.outcome == "short by load":  # what ran may be fewer, and those may have capacity
        judged["Placed"] = alone.judged["Placed"]
    assert judged == alone.judged
    match alone.outcome:
        case "not accepted" | "no place":
            _check_kept(before, after, spec, f"{alone.outcome}, and what runs has changed")
        case "paused":
            assert not before["Deployment"] or _templates(after) == _templates(before)
        case "short" | "short by load" | "pods refused":
            ends = _templates_of(_comparable(cluster))
            assert ends.items() >= _templates_of(alone.state).items()
        case "placed":
            assert _comparable(cluster) == alone.state
            _check_restarts(before, after)


def _outcome(cluster: Cluster) -> str:
    spec, conditions = cluster.inference_deployment(NAME)["spec"], cluster.conditions(NAME)
    if conditions["Accepted"][0] != "True":
        return "not accepted"
    if spec.get("rollout", {}).get("paused"):
        return "paused"
    if not cluster.deployments():
        return "no place"  # also for 0 replicas of a model that runs on no pool
    by_load = "targets" in spec.get("scaling", {})
    if conditions["Placed"][0] != "True":
        return "short by load" if by_load else "short"
    if conditions["Ready"][0] != "True":
        return "pods refused"
    return "by load" if by_load else "placed"


def _judged(cluster: Cluster) -> dict[str, tuple[str, str]]:
    conditions = cluster.conditions(NAME)
    return {kind: conditions[kind] for kind in ("Accepted", "Placed")}


def _children(cluster: Cluster) -> Children:
    return {kind.kind: cluster.api.objects(kind) for kind in _RUNNING}


def _comparable(cluster: Cluster) -> Object:
    """The end state, without what counts of history."""
    state: Any = end_state(cluster.api)
    for name, body in state.items():
        if name.startswith("Deployment/"):
            del body["spec"]["strategy"]
            body["metadata"]["annotations"].pop(ANNOTATION_RENDERED, None)
    itself = state[f"InferenceDeployment/{NAME}"]
    itself["spec"].pop("approvedPlan", None)
    last = itself["status"].pop("lastReadyPlan", None)
    if last is not None and itself["status"]["replicas"]:
        del last["generation"]
        itself["status"]["lastReadyPlan"] = last
    return dict(state)


def _check_kept(before: Children, after: Children, spec: Spec, message: str) -> None:
    """All that ran runs on; where the spec requests fewer replicas, as many of the same pods, or
    more while they move to another pool."""
    requested = spec.get("replicas")
    wanted = sum(body["spec"]["replicas"] for body in before["Deployment"])
    if type(requested) is not int or not 0 <= requested < wanted:
        assert after == before, message
        return
    fewer = min(requested, len(before["Pod"]))
    if len(before["Deployment"]) == 1:
        assert len(after["Pod"]) == fewer, message
    assert len(after["Pod"]) >= fewer, message
    assert _templates(after) == _templates(before), message
    assert after["Service"] == before["Service"], message
    uids = {pod["metadata"]["uid"] for pod in before["Pod"]}
    assert {pod["metadata"]["uid"] for pod in after["Pod"]} <= uids, message


def _templates(children: Children) -> dict[str, Object]:
    return {body["metadata"]["name"]: body["spec"]["template"] for body in children["Deployment"]}


def _templates_of(state: Object) -> dict[str, Object]:
    bodies = [body for name, body in state.items() if name.startswith("Deployment/")]
    return _templates({"Deployment": bodies})


def _check_restarts(before: Children, after: Children) -> None:
    """Pods of a template that is wanted still are not started anew."""
    stay = {pod["metadata"]["uid"] for pod in after["Pod"]}
    for template, count in Counter(map(_runs, after["Pod"])).items():
        mine = [pod for pod in before["Pod"] if _runs(pod) == template]
        kept = [pod for pod in mine if pod["metadata"]["uid"] in stay]
        assert len(kept) == min(len(mine), count), "a pod was started anew without need"


def _runs(pod: Object) -> tuple[str, str]:
    """Deployment and template."""
    metadata = pod["metadata"]
    return metadata["ownerReferences"][0]["name"], metadata["labels"][TEMPLATE_HASH]
