"""Node selectors match nodes as in kube-scheduler."""

from typing import Any

import pytest

from tonnage.fleet.nodes.affinity import read_node_selector, read_pod_affinity

ZONE = "topology.kubernetes.io/zone"
LABELS = {ZONE: "a", "cores": "64", "text": "x"}


def selector(*expressions: dict[str, Any], kind: str = "matchExpressions") -> dict[str, Any]:
    return {"nodeSelectorTerms": [{kind: list(expressions)}]}


def one(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("expression", "is_admitted"),
    [
        (one(ZONE, "In", "a", "b"), True),
        (one(ZONE, "In", "b"), False),
        (one("absent", "In", "b"), False),
        (one(ZONE, "NotIn", "a"), False),
        (one(ZONE, "NotIn", "b"), True),
        (one("absent", "NotIn", "b"), True),
        (one(ZONE, "Exists"), True),
        (one("absent", "Exists"), False),
        (one(ZONE, "DoesNotExist"), False),
        (one("absent", "DoesNotExist"), True),
        (one("cores", "Gt", "63"), True),
        (one("cores", "Gt", "64"), False),
        (one("cores", "Lt", "65"), True),
        (one("cores", "Lt", "64"), False),
        (one("text", "Gt", "1"), False),
        (one("absent", "Gt", "1"), False),
        (one("cores", "Gt", "many"), False),
        (one("cores", "Gt"), False),
        (one("cores", "Near", "64"), False),
        ({}, False),
    ],
)
def test_an_expression(expression: dict[str, Any], is_admitted: bool) -> None:
    requirement = read_node_selector("test", selector(expression))
    assert requirement.admits("node", LABELS) is is_admitted


def test_expressions_are_all_required_and_terms_are_alternatives() -> None:
    here, large = one(ZONE, "In", "a"), one("cores", "Gt", "100")
    assert not read_node_selector("test", selector(here, large)).admits("node", LABELS)
    terms = {"nodeSelectorTerms": [{"matchExpressions": [each]} for each in (large, here)]}
    assert read_node_selector("test", terms).admits("node", LABELS)


def test_fields_match_the_name() -> None:
    named = read_node_selector(
        "test", selector(one("metadata.name", "In", "n1"), kind="matchFields")
    )
    assert named.admits("n1", {})
    assert not named.admits("n2", {"metadata.name": "n1"})


@pytest.mark.parametrize("raw", [{}, {"nodeSelectorTerms": [{}]}, {"nodeSelectorTerms": "x"}])
def test_a_selector_without_expressions_matches_nothing(raw: dict[str, Any]) -> None:
    assert not read_node_selector("test", raw).admits("node", LABELS)


def test_a_pod_requires_its_node_selector_and_its_affinity() -> None:
    spec = {
        "nodeSelector": {ZONE: "a", "cores": "64"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": selector(one("text", "Exists"))
            }
        },
    }
    by_labels, by_affinity = read_pod_affinity("spec.podTemplate.spec", spec)
    assert by_labels.admits("node", LABELS)
    assert not by_labels.admits("node", {ZONE: "a"})
    assert str(by_labels) == f"spec.podTemplate.spec.nodeSelector: cores In (64), {ZONE} In (a)"
    assert by_affinity.admits("node", LABELS)
    assert str(by_affinity) == "spec.podTemplate.spec.affinity.nodeAffinity: text Exists"
    assert read_pod_affinity("spec", {"affinity": {"podAntiAffinity": {}}}) == ()
    assert read_pod_affinity("spec", {"affinity": "x", "nodeSelector": ["y"]}) == ()
