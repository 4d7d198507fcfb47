"""Find the Deployment that carries the replicas, and the pool that they run on now."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.reconcile.observation.child_pods import ChildPod, find_scheduled_pods
from tonnage.reconcile.observation.children import ChildDeployment, secret_values
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.pods.failures import PodFailure, find_failure, find_refusal

_ON_THE_WAY: Final = (
    Reason.CONTAINER_NOT_CREATED,
    Reason.CONTAINERS_NOT_READY,
    Reason.UNSCHEDULABLE,
)
"""Reasons of a pod that has not started: it has no node yet, a scheduling gate holds it, or its
container is still to be created."""


def serving_deployment(observation: Observation) -> ChildDeployment | None:
    """The Deployment that carries the replicas: of those in this shard that were placed for the
    current spec, the newest."""
    return newest(_deployments_for_spec(observation))


def find_secondary_deployments(
    observation: Observation, serving: ChildDeployment
) -> list[ChildDeployment]:
    """The other Deployments, which carry what `serving` does not."""
    return [
        one for one in _deployments_for_spec(observation) if one.secondary and one is not serving
    ]


def _deployments_for_spec(observation: Observation) -> Iterable[ChildDeployment]:
    """The Deployments of this shard whose pool was chosen for the current spec."""
    return (
        deployment
        for deployment in observation.deployments
        if observation.is_choice(deployment.placement_digest)
        and observation.shard.has(deployment.child.body)
    )


def newest(deployments: Iterable[ChildDeployment]) -> ChildDeployment | None:
    """The Deployment that the replicas were placed on last; of several that carry them together the
    first one, if it exists."""
    return max(deployments, key=lambda one: (not one.secondary, one.since), default=None)


def failure_to_serve(observation: Observation, placement: str | None) -> PodFailure | None:
    """The failure of the newest template, in one placement or (None) in all; older templates are on
    their way out."""
    deployments = [one for one in observation.deployments if placement in (None, one.placement)]
    by_placement: dict[str, list[ChildPod]] = {}
    for pod in observation.pods:
        if placement in (None, pod.placement):
            by_placement.setdefault(pod.placement, []).append(pod)
    serving = [
        pod for pods in by_placement.values() for pod in _of_newest_template(pods, observation.logs)
    ]
    templates = {(pod.placement, pod.template) for pod in serving}
    failed = tuple(
        pod
        for pod in observation.reports.failed
        if placement in (None, pod.placement)
        and (not templates or (pod.placement, pod.template) in templates)
    )
    if not failed and all(pod.ready for pod in serving):
        return find_refusal(deployments)
    secrets = {value for one in observation.deployments for value in secret_values(one)}
    reports = replace(observation.reports, failed=failed)
    failure = find_failure(serving, observation.logs, secrets, reports)
    return failure or find_refusal(deployments)


def _of_newest_template(pods: Sequence[ChildPod], logs: Mapping[str, str]) -> list[ChildPod]:
    """The pods of the newest template; `pods` are of one placement, the oldest first.

    Creation times of pods have whole seconds. Of templates created within one second, the one whose
    pods have progressed least is the newest.
    """
    newest_pods = [pod for pod in pods if pod.created == pods[-1].created]
    staying = [pod for pod in newest_pods if not pod.deleting] or newest_pods
    templates = dict.fromkeys(pod.template for pod in reversed(staying))
    candidates = ([pod for pod in pods if pod.template == template] for template in templates)
    return min(candidates, key=lambda candidate: _progress(candidate, logs))


def _progress(pods: Sequence[ChildPod], logs: Mapping[str, str]) -> int:
    """How far the pods of a template have progressed: 0 on their way, 1 ready, 2 failed. A failure
    is often the cause of a newer template."""
    failure = find_failure(pods, logs)
    if failure is not None and failure.reason not in _ON_THE_WAY:
        return 2
    return int(any(pod.ready for pod in pods))


def pool_now(
    current: ChildDeployment, pods: Iterable[ChildPod], pools: Iterable[Pool], fleet: Fleet
) -> str:
    """The pool that the replicas run in. The pool of their nodes may have another name since: a
    platform team has declared one, or has deleted a declared one. Replicas on their way to a pool
    of the same cards belong there already."""
    nodes = {pod.node for pod in find_scheduled_pods(pods, current.placement) if pod.node}
    by_pool = Counter(fleet.pool_of(node) for node in nodes)
    accelerator = current.accelerator
    runs_on = {
        pool.name: by_pool[pool.name]
        for pool in pools
        if pool.accelerator is not None and pool.accelerator.id == accelerator
    }
    on_its_way = current.pool in runs_on and not current.settled
    if on_its_way or not any(runs_on.values()) or runs_on.get(current.pool):
        return current.pool
    return max(runs_on, key=lambda name: runs_on[name])
