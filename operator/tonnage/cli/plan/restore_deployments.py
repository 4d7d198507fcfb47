"""Restores the Deployments of running objects, if a dump holds their pods but not the Deployments.

Users often have only `kubectl get nodes` and `kubectl get pods -A` at hand. The pods, and the
status of the object if the file has one, show where the replicas run. Fields that only a Deployment
has are assumed to be as after a first rollout: rendered from this spec by this version, with a
surge.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tonnage.api.inference import Rollout
from tonnage.api.names import (
    ANNOTATION_RENDERED,
    ANNOTATION_TEMPLATE,
    LABEL_PLACEMENT,
)
from tonnage.api.parse import InvalidSpecError
from tonnage.engines.inputs import SurgeMode
from tonnage.engines.registry import engine_container, engine_named
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import stamped
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.children import Child, ChildDeployment
from tonnage.reconcile.observation.digests import placement_digest
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.template_record import recorded_annotations
from tonnage.reconcile.status.status import SPREAD
from tonnage.workloads.registry import WORKLOAD_KINDS, workload_kind_for, workload_kind_of


def restore_deployments(observation: Observation, pods: Iterable[Object]) -> Observation:
    """The observation with the Deployments of its pods; `pods` are the same pods, unparsed."""
    reported = {
        str(one.get("name")): one for one in observation.previous_status.get("placements", [])
    }
    raw = {pod["metadata"]["name"]: pod for pod in pods}
    placements: dict[str, list[ChildPod]] = {}
    for pod in observation.pods:
        if not pod.serves:
            continue
        placements.setdefault(pod.placement, []).append(pod)
    restored = (
        _restore(observation, name, members, reported.get(name, {}), raw[members[0].name])
        for name, members in sorted(placements.items())
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
    parallelism = _read_parallelism(newest)
    kind = workload_kind_for(parallelism.nodes)
    template = {
        "metadata": {"labels": newest["metadata"].get("labels") or {}},
        "spec": {key: newest["spec"].get(key) or [] for key in ("containers", "volumes")},
    }
    name = kind.name(observation.key.name, placement)
    metadata = {"name": name, "labels": {LABEL_PLACEMENT: placement}}
    body = kind.with_template({"kind": kind.kind.kind, "metadata": metadata, "spec": {}}, template)
    return ChildDeployment(
        child=Child(name, "", "", body),
        created=pods[0].created,
        pool=str(reported.get("pool", "")),
        parallelism=parallelism,
        placement_digest=_placement_digest(observation),
        template="",
        wanted=wanted if isinstance(wanted, int) else len(staying),
        existing=len(staying),
        ready=sum(pod.ready for pod in staying),
        settled=wanted == len(staying),
        secondary=reported.get("reason") == SPREAD,
    )


def _read_parallelism(pod: Object) -> Parallelism:
    """The parallelism of the pod, from the arguments of its container; 1 where its nodes cannot
    share its GPUs."""
    container = engine_container(pod["spec"]) or {}
    engine = engine_named(container.get("name", ""))
    parallelism = engine.read_parallelism(container.get("args") or ())
    return Parallelism() if parallelism.gpus % parallelism.nodes else parallelism


def _placement_digest(observation: Observation) -> str:
    """The digest of the spec that the replicas were placed for; empty if status is older."""
    spec = observation.spec
    observed = observation.previous_status.get("observedGeneration", observation.generation)
    if isinstance(spec, InvalidSpecError) or observed != observation.generation:
        return ""
    return placement_digest(spec)


def as_rendered(observation: Observation, children: Iterable[Object]) -> Observation:
    """The observation with its restored Deployments and the other children as rendered now."""
    by_kind: dict[str, list[Object]] = {}
    for body in children:
        by_kind.setdefault(body["kind"], []).append(body)
    if not by_kind:
        return observation
    rendered = {
        body["metadata"]["name"]: _with_surge(body)
        for kind in WORKLOAD_KINDS
        for body in by_kind.get(kind.kind, ())
    }
    service, *others = map(_make_child, by_kind["Service"])
    pools = by_kind.get("InferencePool", ())
    return replace(
        observation,
        service=service,
        placement_services=tuple(others),
        inference_pool=next(map(_make_child, pools), None),
        deployments=tuple(
            _as_rendered(deployment, rendered.get(deployment.child.name))
            for deployment in observation.deployments
        ),
    )


def _as_rendered(deployment: ChildDeployment, rendered: Object | None) -> ChildDeployment:
    if rendered is None:
        return deployment
    template = rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    return replace(deployment, child=_make_child(rendered), template=template)


def _with_surge(deployment: Object) -> Object:
    metadata = deployment["metadata"]
    record = recorded_annotations(deployment)
    annotations = {
        key: value
        for key, value in metadata["annotations"].items()
        if key != ANNOTATION_RENDERED and key not in record
    }
    kind = workload_kind_of(deployment)
    rendered = kind.with_surge_mode(
        deployment | {"metadata": metadata | {"annotations": annotations}},
        SurgeMode.SURGE if kind.can_surge(deployment) else SurgeMode.ONE_BY_ONE,
        Rollout(),
    )
    return stamped(rendered, record)


def _make_child(body: Object) -> Child:
    return Child(body["metadata"]["name"], "", "", body)
