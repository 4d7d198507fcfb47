"""Which Deployment carries the replicas, and where these run by now."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.reconcile.children import ChildDeployment, ChildPod, secret_values
from tonnage.reconcile.failures import PodFailure, find_failure, find_refusal
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.retain import scheduled

_ON_THE_WAY: Final = (Reason.CONTAINERS_NOT_READY, Reason.UNSCHEDULABLE)
"""Why a pod waits that has not begun: Kubernetes has no node for it yet, or no leave."""


def serving_deployment(observation: Observation) -> ChildDeployment | None:
    """The Deployment that carries the replicas: of those that were placed for this very wish, in
    this shard, the one that they were told to run on last."""
    return newest(_placed_for_spec(observation))


def shares_beside(observation: Observation, serving: ChildDeployment) -> list[ChildDeployment]:
    """The Deployments that carry what that one does not."""
    return [
        found for found in _placed_for_spec(observation) if found.beside and found is not serving
    ]


def _placed_for_spec(observation: Observation) -> Iterable[ChildDeployment]:
    """The Deployments of this shard whose place was chosen for what the spec asks for now."""
    return (
        found
        for found in observation.deployments
        if found.placed_for in observation.choice_digests
        and observation.shard.has(found.child.body)
    )


def newest(deployments: Iterable[ChildDeployment]) -> ChildDeployment | None:
    """The one that the replicas were told to run on last; of several that carry them together the
    one that the others are beside, as long as that is there."""
    return max(deployments, key=lambda found: (not found.beside, found.since), default=None)


def failure_to_serve(observation: Observation, placement: str | None) -> PodFailure | None:
    """The failure of the template that is to serve now, in one placement or (None) in all; those of
    older templates leave."""
    deployments = [one for one in observation.deployments if placement in (None, one.placement)]
    secrets = {value for found in observation.deployments for value in secret_values(found)}
    by_placement: dict[str, list[ChildPod]] = {}
    for pod in observation.pods:
        if placement in (None, pod.placement):
            by_placement.setdefault(pod.placement, []).append(pod)
    serving = [
        pod for pods in by_placement.values() for pod in _of_newest_template(pods, observation.logs)
    ]
    return find_failure(serving, observation.logs, secrets) or find_refusal(deployments)


def _of_newest_template(pods: Sequence[ChildPod], logs: Mapping[str, str]) -> list[ChildPod]:
    """The pods of the template that came last; `pods` are of one placement, the oldest first.

    Pods say in whole seconds when they were created. Of templates that came within one second it is
    the one whose pods have got least far.
    """
    last = [pod for pod in pods if pod.created == pods[-1].created]
    staying = [pod for pod in last if not pod.deleting] or last
    templates = dict.fromkeys(pod.template for pod in reversed(staying))
    candidates = ([pod for pod in pods if pod.template == template] for template in templates)
    return min(candidates, key=lambda those: _progress(those, logs))


def _progress(pods: Sequence[ChildPod], logs: Mapping[str, str]) -> int:
    """How far the pods of a template have got: they are on their way, serve, or have failed, which
    is often why there is another template."""
    failure = find_failure(pods, logs)
    if failure is not None and failure.reason not in _ON_THE_WAY:
        return 2
    return int(any(pod.ready for pod in pods))


def pool_now(
    current: ChildDeployment, pods: Iterable[ChildPod], pools: Iterable[Pool], fleet: Fleet
) -> str:
    """The pool that the replicas run in. Its nodes may be in one of another name since: a platform
    team has declared it, or has deleted a declared one. Replicas that are on their way to a pool of
    the same cards belong there already."""
    nodes = {pod.node for pod in scheduled(pods, current.placement) if pod.node}
    by_pool = Counter(fleet.pool_of(node) for node in nodes)
    runs_on = {
        pool.name: by_pool[pool.name]
        for pool in pools
        if pool.accelerator is not None and pool.accelerator.id == current.accelerator
    }
    on_its_way = current.pool in runs_on and not current.settled
    if on_its_way or not any(runs_on.values()) or runs_on.get(current.pool):
        return current.pool
    return max(runs_on, key=lambda name: runs_on[name])
