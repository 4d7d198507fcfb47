"""docs/rights.md explains every right of the shipped role, and no other."""

import re
from collections import defaultdict
from itertools import product
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
ROW = re.compile(
    r"^\| (?P<resources>`[^|]+`) \| (?P<verbs>[a-z, ]+) \| \S.* \| \S.* \|$", re.MULTILINE
)


def rights_of(path):
    """Resource, with its group, to verbs, over all rules of a file."""
    verbs = defaultdict(set)
    for body in yaml.safe_load_all(path.read_text("utf-8")):
        for rule in body.get("rules", []):
            for group, resource in product(rule["apiGroups"], rule["resources"]):
                verbs[".".join(filter(None, (resource, group)))] |= set(rule["verbs"])
    return verbs


def explained(section=""):
    """The same as the page's tables have it; of one section where it is named."""
    page = (ROOT / "docs" / "rights.md").read_text("utf-8")
    part = page.partition(f"\n## {section}")[2].partition("\n## ")[0] if section else page
    verbs = defaultdict(set)
    for row in ROW.finditer(part):
        for resource in re.findall(r"`([^`]+)`", row["resources"]):
            verbs[resource] |= set(row["verbs"].split(", "))
    return verbs


def resource_of(name):
    return name.replace("/status.tonnage.dev", ".tonnage.dev/status")


def test_every_rule_is_explained_and_no_other():
    shipped = rights_of(ROOT / "manifests" / "base" / "rbac.yaml")
    assert explained() == {resource_of(name): verbs for name, verbs in shipped.items()}


def test_the_role_of_a_served_namespace_is_the_first_table():
    role = rights_of(ROOT / "manifests" / "overlays" / "namespace-scoped" / "rbac.yaml")
    assert explained("In the namespaces that are served") == {
        resource_of(name): verbs for name, verbs in role.items()
    }
