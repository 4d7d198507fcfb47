"""Whether node selector and required node affinity of a pod admit a node, as in kube-scheduler."""

from collections.abc import Mapping
from typing import Any


def admits(labels: Mapping[str, str], spec: Mapping[str, Any]) -> bool:
    """Whether a pod of this spec may be on a node with these labels."""
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(
        all(_matches(labels, wanted) for wanted in term.get("matchExpressions") or ())
        for term in required["nodeSelectorTerms"]
    )


def _matches(labels: Mapping[str, str], wanted: Mapping[str, Any]) -> bool:
    """An absent label is not in any list, and neither greater nor less than any number."""
    value = labels.get(wanted["key"])
    match wanted["operator"]:
        case "In":
            return value in wanted["values"]
        case "NotIn":
            return value not in wanted["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdigit() and int(value) > int(wanted["values"][0])
    raise AssertionError(f"no pod of a test requires {wanted['operator']}: add it here")
