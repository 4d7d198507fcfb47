"""The PodDisruptionBudgets that may select pods of an InferenceDeployment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.informers.owners import ANY_OWNER
from tonnage.kube.kinds import POD_DISRUPTION_BUDGETS
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import Child, is_controlled_by, read_child

Owned = Callable[[Kind, tuple[str, str]], list[Object]]
"""Reads the objects of a kind that belong to a namespace and name."""


@dataclass(frozen=True, slots=True)
class DisruptionBudgets:
    """The budgets that the InferenceDeployment controls, and those of users in its namespace."""

    own: tuple[Child, ...] = ()
    foreign: tuple[Object, ...] = ()


def read_budgets(owned: Owned, key: Key, uid: str) -> DisruptionBudgets:
    """Read the budgets in the object's namespace, except those of other InferenceDeployments."""
    labelled = owned(POD_DISRUPTION_BUDGETS, key)
    unlabelled = owned(POD_DISRUPTION_BUDGETS, (key.namespace, ANY_OWNER))
    own = (read_child(body) for body in labelled if is_controlled_by(body, uid))
    return DisruptionBudgets(
        own=tuple(sorted(own, key=lambda child: child.name)),
        foreign=(*(body for body in labelled if not is_controlled_by(body, uid)), *unlabelled),
    )


def selects(budget: Object, labels: Mapping[str, str]) -> bool:
    """Whether the budget selects pods with these labels.

    As in policy/v1: an empty selector selects all pods, and a missing one none.
    """
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None:
        return False
    required = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return required.items() <= labels.items() and all(
        _matches(expression, labels) for expression in expressions
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:  # a newer operator of Kubernetes: the pods may be selected
            return True
