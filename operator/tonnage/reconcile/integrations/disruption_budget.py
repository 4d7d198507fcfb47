"""Plan the PodDisruptionBudget of an object. Pure.

Two or more replicas have one; with fewer it could only block the drain of a node. The last replica
stays until another one is ready. The eviction API refuses to evict a pod that two budgets select,
so the operator's budget goes where a user's budget selects the same pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.kube.kinds import POD_DISRUPTION_BUDGETS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Delete, apply_if_changed, stamped
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.disruption_budgets import selects
from tonnage.reconcile.observation.template_record import template_of
from tonnage.reconcile.scheduling.context import owner_of
from tonnage.workloads.disruption_budget import render_disruption_budget
from tonnage.workloads.registry import WORKLOAD_KINDS

_KINDS: Final = frozenset(kind.kind for kind in WORKLOAD_KINDS)

_PROTECTED_FROM: Final = 2
"""Replicas from which one may be evicted while others serve."""


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """Actions that may fail without harm, and the rendered budget."""

    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()


def plan_budget(
    observation: Observation, wanted: int | None, children: Iterable[Object]
) -> BudgetPlan:
    """Apply the budget of an object that wants two replicas or more; delete it for fewer.

    `wanted` is None while the number is unknown: the budget then only shrinks with the Deployments.
    `children` are the objects that the replicas are to run as, none where they stay as they are.
    Nothing changes while the operator may not list budgets.
    """
    budgets = observation.budgets
    if budgets is None:
        return BudgetPlan()
    if wanted is None:
        wanted = _wanted_at_most(observation, budgets.own)
    rendered = [child for child in children if child["kind"] in _KINDS]
    deployments = rendered or [one.child.body for one in observation.deployments]
    if wanted < _PROTECTED_FROM or _is_selected(deployments, budgets.foreign):
        delete = (Delete(POD_DISRUPTION_BUDGETS, budgets.own),) if budgets.own else ()
        return BudgetPlan(actions=delete)
    running = sum(deployment["spec"]["replicas"] for deployment in deployments)
    min_available = max(1, min(wanted, running) - 1)
    budget = stamped(render_disruption_budget(owner_of(observation), min_available))
    name = budget["metadata"]["name"]
    is_taken = any(foreign["metadata"]["name"] == name for foreign in budgets.foreign)
    if not deployments or is_taken:
        return BudgetPlan()
    actions = apply_if_changed(POD_DISRUPTION_BUDGETS, budget, budgets.own)
    return BudgetPlan(actions, (budget,) if rendered else ())


def _wanted_at_most(observation: Observation, own: Child | None) -> int:
    """The replicas that the live budget is for, or fewer where the spec requests fewer."""
    protected = own.body["spec"].get("minAvailable") if own else None
    if type(protected) is not int:  # any editor of the budget can write any value
        return 0
    requested = observation.requested_replicas
    return protected + 1 if requested is None else min(protected + 1, requested)


def _is_selected(deployments: Iterable[Object], foreign: Iterable[Object]) -> bool:
    """Whether a user's budget selects pods of the object."""
    pod_labels, budgets = map(_pod_labels, deployments), list(foreign)
    return any(selects(budget, labels) for labels in pod_labels for budget in budgets)


def _pod_labels(deployment: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = template_of(deployment)["metadata"].get("labels") or {}
    return labels
