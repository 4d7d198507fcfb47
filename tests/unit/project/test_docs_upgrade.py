"""docs/upgrade.md says of every field of both kinds what its removal would take.

A row names a field alone, or as `field.*` with all below it that have no row of their own.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.support.specs.schema_examples import field_paths

ROOT = Path(__file__).parents[3]
KINDS = {
    "InferenceDeployment": "tonnage.dev_inferencedeployments.yaml",
    "AcceleratorPool": "tonnage.dev_acceleratorpools.yaml",
}


def fields_of_the_page(kind):
    """The paths of the table under a kind's heading, and how often each stands there."""
    page = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    table = page.split(f"\n### {kind}\n")[1].split("\n### ")[0]
    counts = Counter()
    for row in re.findall(r"^\| `(\.\S*)` \| (.*?) \| \S.* \|$", table, re.MULTILINE):
        parent, fields = row
        for field in re.findall(r"`(\S+?)`", fields):
            counts[f"{parent.rstrip('.')}.{field}"] += 1
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_once_in_the_table_of_its_kind(kind):
    crd = yaml.safe_load((ROOT / "crds" / KINDS[kind]).read_text(encoding="utf-8"))
    (version,) = crd["spec"]["versions"]
    fields = set(field_paths(version["schema"]["openAPIV3Schema"]))
    counts = fields_of_the_page(kind)
    subtrees = {name.removesuffix(".*") for name in counts if name.endswith(".*")}
    described = {field for field in fields if field in counts or is_in_one(field, subtrees)}
    assert fields - described == set(), "describe what goes with them"
    assert {name.removesuffix(".*") for name in counts} - fields == set(), "are not fields any more"
    assert [path for path, times in counts.items() if times > 1] == []
    assert subtrees & counts.keys() == set(), "have two rows"


def is_in_one(field, subtrees):
    """Whether a field, or one above it, is the root of a subtree that a row describes."""
    parts = re.split(r"(?=\.|\[\])", field)
    return any("".join(parts[:count]) in subtrees for count in range(1, len(parts) + 1))
