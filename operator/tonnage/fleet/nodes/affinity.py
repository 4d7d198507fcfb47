"""Which nodes a pod can run on, by node selectors, as kube-scheduler evaluates them.

Source: Kubernetes v1.35.4, component-helpers/scheduling/corev1/nodeaffinity. The input may be
hostile: what cannot be read matches no node, as in the API, which refuses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping, as_sequence

_NAME: Final = "metadata.name"
_MAX_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Expression:
    """What a label of a node, or its name, has to be; `operator` is that of the API."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def admits(self, value: str | None) -> bool:
        """Whether the label may have this value; None is no label."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                numbers = [_read_integer(text) for text in (value, *self.values)]
                if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
                    return False
                greater = numbers[0] > numbers[1]
                return greater if self.operator == "Gt" else numbers[0] < numbers[1]
        return False

    def __str__(self) -> str:
        values = f" ({', '.join(self.values)})" if self.values else ""
        return f"{self.key} {self.operator}{values}"


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """Alternatives, of which a node has to meet one: each has expressions for its labels and for
    its name. `source` names where it comes from, for messages."""

    source: str
    alternatives: tuple[tuple[Expression, ...], ...]

    def admits(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node of this name, with these labels, meets it."""
        return any(
            all(one.admits(name if one.key == _NAME else labels.get(one.key)) for one in each)
            for each in self.alternatives
            if each
        )

    def __str__(self) -> str:
        alternatives = (", ".join(map(str, each)) for each in self.alternatives)
        return f"{self.source}: {' or '.join(alternatives)[:_MAX_SHOWN_CHARS]}"


def read_node_selector(source: str, selector: Mapping[str, Any]) -> NodeRequirement:
    """Read a node selector, as in a required node affinity or in a PersistentVolume."""
    terms = [as_mapping(term) for term in as_sequence(selector.get("nodeSelectorTerms"))]
    return NodeRequirement(
        source,
        tuple(
            tuple(
                read_expression(as_mapping(each))
                for kind in ("matchExpressions", "matchFields")
                for each in as_sequence(term.get(kind))
            )
            for term in terms
        ),
    )


def read_pod_affinity(source: str, spec: Mapping[str, Any]) -> tuple[NodeRequirement, ...]:
    """Read what the spec of a pod, or a part of it, requires of nodes: nodeSelector and required
    node affinity; `source` is the path of the spec."""
    requirements = []
    labels = as_mapping(spec.get("nodeSelector"))
    if labels:
        expressions = (Expression(str(key), "In", (str(labels[key]),)) for key in sorted(labels))
        requirements.append(NodeRequirement(f"{source}.nodeSelector", (tuple(expressions),)))
    affinity = as_mapping(as_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        path = f"{source}.affinity.nodeAffinity"
        requirements.append(read_node_selector(path, as_mapping(required)))
    return tuple(requirements)


def read_expression(raw: Mapping[str, Any]) -> Expression:
    """Read an expression of a selector."""
    values = tuple(str(value) for value in as_sequence(raw.get("values")))
    return Expression(str(raw.get("key")), str(raw.get("operator")), values)


def _read_integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
