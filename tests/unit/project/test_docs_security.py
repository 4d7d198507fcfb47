"""The threat model names tests, and each of them is there."""

import re
from pathlib import Path

import pytest
import yaml

PAGE = Path("SECURITY.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if "::test_" in line]


def named(row: str) -> list[tuple[Path, str]]:
    """The tests in the last column; one that begins with `::` is in the file of the one before."""
    tests, path = [], ""
    for file, test in re.findall(r"`([\w/.]*)::(test_\w+)`", row):
        path = file or path
        tests.append((Path(path), test))
    return tests


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_a_row_names_tests_that_exist(row: str) -> None:
    tests = named(row)
    assert len(tests) == row.count("::")
    for path, test in tests:
        assert re.search(rf"def {test}\(", path.read_text("utf-8")), test


def fields_that_reach_pods() -> set[str]:
    """Those of the template and of the engine, as the CRD has them."""
    crd = yaml.safe_load(Path("crds/tonnage.dev_inferencedeployments.yaml").read_text("utf-8"))
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields = set()
    for parent in (
        *spec["template"]["properties"].values(),
        *spec["engine"]["properties"].values(),
    ):
        fields |= parent.get("properties", {}).keys()
    return fields


def test_every_field_that_reaches_pods_is_in_the_table() -> None:
    table = PAGE.split("### Spec fields that reach pods")[1].split("### Not defended")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name.rpartition(".")[2] for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert sorted(named) == sorted(fields_that_reach_pods())
