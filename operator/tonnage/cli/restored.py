"""The children of objects that run, where a dump holds their pods and not their Deployments.

`kubectl get nodes` and `kubectl get pods -A` are what people have at hand. The pods, and the
status of the object where the file has one, tell the place of the replicas. What only a Deployment
tells is taken to be as after a first roll-out: rendered from this very spec by this very version,
with a surge. A dump that holds the Deployments too needs none of this.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tonnage.api.inference import Rollout
from tonnage.api.names import (
    ANNOTATION_RENDERED,
    ANNOTATION_TEMPLATE,
    LABEL_PLACEMENT,
    VLLM_CONTAINER,
)
from tonnage.api.parse import InvalidSpecError
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import stamped
from tonnage.reconcile.children import Child, ChildDeployment, ChildPod
from tonnage.reconcile.choice import placed_for
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.status import SPREAD
from tonnage.render.deployment import render_strategy
from tonnage.render.model import SurgeMode
from tonnage.render.names import deployment_name

_DEGREES = ("--tensor-parallel-size", "--pipeline-parallel-size")


def restore_deployments(observation: Observation, pods: Iterable[Object]) -> Observation:
    """The observation with the Deployments that its pods must be of; `pods` are these, raw."""
    reported = {
        str(found.get("name")): found for found in observation.previous_status.get("placements", [])
    }
    raw = {pod["metadata"]["name"]: pod for pod in pods}
    placements: dict[str, list[ChildPod]] = {}
    for pod in observation.pods:
        placements.setdefault(pod.placement, []).append(pod)
    restored = (
        _restore(observation, name, found, reported.get(name, {}), raw[found[0].name])
        for name, found in sorted(placements.items())
        if name
    )
    return replace(observation, deployments=tuple(restored))


def _restore(
    observation: Observation,
    placement: str,
    pods: list[ChildPod],
    reported: Mapping[str, Any],
    newest: Object,
) -> ChildDeployment:
    staying = [pod for pod in pods if not pod.deleting]
    wanted = reported.get("replicas", len(staying))
    template = {"spec": {key: newest["spec"].get(key) for key in ("containers", "volumes")}}
    body = {"metadata": {"labels": {LABEL_PLACEMENT: placement}}, "spec": {"template": template}}
    return ChildDeployment(
        child=Child(deployment_name(observation.key.name, placement), "", "", body),
        created=pods[0].created,
        pool=str(reported.get("pool", "")),
        parallelism=_read_degrees(newest),
        placed_for=_placed_for(observation),
        template="",
        wanted=wanted if isinstance(wanted, int) else len(staying),
        existing=len(staying),
        ready=sum(pod.ready for pod in staying),
        settled=wanted == len(staying),
        beside=reported.get("reason") == SPREAD,
    )


def _read_degrees(pod: Object) -> Parallelism:
    """The split that the pod was started with, from its arguments."""
    containers = pod["spec"].get("containers") or []
    given = dict(
        argument.partition("=")[::2]
        for container in containers
        if container.get("name") == VLLM_CONTAINER
        for argument in container.get("args") or []
    )
    tensor, pipeline = (given.get(flag, "1") for flag in _DEGREES)
    return Parallelism(*(int(found) if found.isdecimal() else 1 for found in (tensor, pipeline)))


def _placed_for(observation: Observation) -> str:
    """What the replicas were placed for: this spec, unless status speaks of an older one."""
    spec = observation.spec
    observed = observation.previous_status.get("observedGeneration", observation.generation)
    if isinstance(spec, InvalidSpecError) or observed != observation.generation:
        return ""
    return placed_for(spec)


def as_rendered(observation: Observation, children: Iterable[Object]) -> Observation:
    """The observation with its restored Deployments, and what is beside them, as rendered now."""
    by_kind: dict[str, list[Object]] = {}
    for body in children:
        by_kind.setdefault(body["kind"], []).append(body)
    if not by_kind:
        return observation
    rendered = {body["metadata"]["name"]: _with_surge(body) for body in by_kind["Deployment"]}
    service, *others = map(_child, by_kind["Service"])
    pools = by_kind.get("InferencePool", ())
    return replace(
        observation,
        service=service,
        placement_services=tuple(others),
        inference_pool=next(map(_child, pools), None),
        deployments=tuple(
            _as_rendered(found, rendered.get(found.child.name)) for found in observation.deployments
        ),
    )


def _as_rendered(found: ChildDeployment, rendered: Object | None) -> ChildDeployment:
    if rendered is None:
        return found
    template = rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    return replace(found, child=_child(rendered), template=template)


def _with_surge(deployment: Object) -> Object:
    metadata, spec = deployment["metadata"], deployment["spec"]
    annotations = {
        key: value for key, value in metadata["annotations"].items() if key != ANNOTATION_RENDERED
    }
    return stamped(
        deployment
        | {"metadata": metadata | {"annotations": annotations}}
        | {"spec": spec | {"strategy": render_strategy(SurgeMode.SURGE, Rollout())}}
    )


def _child(body: Object) -> Child:
    return Child(body["metadata"]["name"], "", "", body)
