"""Plan the PodDisruptionBudgets of an object. Pure.

Two or more replicas have one; with fewer it could only block the drain of a node. The last replica
stays until another one is ready. The eviction API refuses to evict a pod that two budgets select,
so the operator's budgets go where a user's budget selects the same pods.

Where a replica has several pods, each workload has a budget of its own, which counts its pods: no
label is common to the pods of all placements and of no other object.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from tonnage.kube.kinds import POD_DISRUPTION_BUDGETS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Delete, apply_if_changed, stamped
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.disruption_budgets import selects
from tonnage.reconcile.scheduling.context import owner_of
from tonnage.workloads.disruption_budget import render_disruption_budget, render_workload_budget
from tonnage.workloads.names import disruption_budget_name
from tonnage.workloads.registry import WORKLOAD_KINDS, workload_kind_of

_KINDS: Final = frozenset(kind.kind for kind in WORKLOAD_KINDS)

_PROTECTED_FROM: Final = 2
"""Replicas from which one may be evicted while others serve."""


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """Actions that may fail without harm, and the rendered budgets."""

    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class _Workload:
    """A workload as it is or is to be."""

    name: str
    body: Object
    replicas: int

    @classmethod
    def of(cls, body: Object) -> Self:
        """The rendered workload."""
        return cls(body["metadata"]["name"], body, body["spec"]["replicas"])

    @property
    def pods_per_replica(self) -> int:
        """The pods of a replica."""
        return workload_kind_of(self.body).pods_per_replica(self.body)


def plan_budget(
    observation: Observation, wanted: int | None, children: Iterable[Object]
) -> BudgetPlan:
    """Apply the budgets of an object that wants two replicas or more; delete them for fewer.

    `wanted` is None while the number is unknown: the budgets then only shrink with the workloads.
    `children` are the objects that the replicas are to run as, none where they stay as they are.
    Nothing changes while the operator may not list budgets.
    """
    budgets = observation.budgets
    if budgets is None:
        return BudgetPlan()
    own = {child.name: child for child in budgets.own}
    rendered = [_Workload.of(child) for child in children if child["kind"] in _KINDS]
    live = [
        _Workload(one.child.name, one.child.body, one.wanted) for one in observation.deployments
    ]
    workloads = rendered or live
    every = {workload.name: workload for workload in (*live, *rendered)}
    has_groups = any(workload.pods_per_replica > 1 for workload in every.values())
    if wanted is None:
        protected = _count_protected(observation, own, every.values() if has_groups else ())
        requested = observation.requested_replicas
        wanted = protected if requested is None else min(protected, requested)
    if wanted < _PROTECTED_FROM or _is_selected(workloads, budgets.foreign):
        return BudgetPlan(tuple(Delete(POD_DISRUPTION_BUDGETS, child) for child in budgets.own))
    if not workloads:
        return BudgetPlan()
    bodies = (
        _render_each(observation, wanted, every.values())
        if has_groups
        else (_render_one(observation, wanted, workloads),)
    )
    taken = {foreign["metadata"]["name"] for foreign in budgets.foreign}
    wanted_budgets = [stamped(body) for body in bodies if body["metadata"]["name"] not in taken]
    names = {body["metadata"]["name"] for body in wanted_budgets}
    # First those that are replaced: two budgets over a pod would refuse its eviction.
    outdated = (child for name, child in own.items() if name not in names)
    actions: list[Action] = [Delete(POD_DISRUPTION_BUDGETS, child) for child in outdated]
    for body in wanted_budgets:
        child = own.get(body["metadata"]["name"])
        actions.extend(apply_if_changed(POD_DISRUPTION_BUDGETS, body, child))
    return BudgetPlan(tuple(actions), tuple(wanted_budgets) if rendered else ())


def _render_one(observation: Observation, wanted: int, workloads: Iterable[_Workload]) -> Object:
    running = sum(workload.replicas for workload in workloads)
    return render_disruption_budget(owner_of(observation), max(1, min(wanted, running) - 1))


def _render_each(
    observation: Observation, wanted: int, workloads: Iterable[_Workload]
) -> Iterator[Object]:
    """A budget for each workload. The last replica of one may be evicted only while another one has
    ready replicas. One more, which a rollout has begun, is not counted as able to serve."""
    ready = {one.child.name: one.ready for one in observation.deployments}
    existing = {one.child.name: one.existing for one in observation.deployments}
    for workload in workloads:
        surging = max(0, existing.get(workload.name, 0) - workload.replicas)
        replicas = min(wanted, workload.replicas) + surging
        others = sum(count for name, count in ready.items() if name != workload.name)
        kept = replicas - 1 if others else max(1, replicas - 1)
        if replicas:
            yield render_workload_budget(owner_of(observation), workload.body, kept)


def _count_protected(
    observation: Observation, own: Mapping[str, Child], with_own_budget: Iterable[_Workload]
) -> int:
    """The replicas that the live budgets are for: those of the workloads with a budget of their
    own, else that of the object."""
    budget_of_object = own.get(disruption_budget_name(observation.key.name))
    counted = [
        _count_pods(own.get(workload.name)) // workload.pods_per_replica
        for workload in with_own_budget
    ]
    return sum(counted) if counted else _count_pods(budget_of_object)


def _count_pods(budget: Child | None) -> int:
    """The pods that a live budget is for; any editor of it can write any value."""
    least = budget.body["spec"].get("minAvailable") if budget else None
    return least + 1 if type(least) is int else 0


def _is_selected(workloads: Iterable[_Workload], foreign: Iterable[Object]) -> bool:
    """Whether a user's budget selects pods of the object."""
    budgets = list(foreign)
    return any(
        selects(budget, labels)
        for workload in workloads
        for labels in workload_kind_of(workload.body).pod_labels(workload.body)
        for budget in budgets
    )
