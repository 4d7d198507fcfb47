"""docs/api.md has every field of the CRDs, with what the API server checks."""

from pathlib import Path

import pytest

from tonnage.api.crd import crd_manifests
from tonnage.cli.commands.reference import reference_page
from tonnage.cli.main import main

PAGE = Path(__file__).parents[4] / "docs" / "api.md"


def fields(schema, path=""):
    """Yield the path of every field of a schema, and the field."""
    inner = schema.get("items") or schema.get("additionalProperties") or schema
    for name, field in inner.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")


def rows(page):
    """The cells of each row of the page's tables, by the path of its field."""
    heading = ""
    cells_by_path = {}
    for line in page.splitlines():
        if line.startswith("### "):
            heading = line.removeprefix("### ")
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]
            cells_by_path[f"{heading}.{cells[0].strip('`')}"] = cells[1:]
    return cells_by_path


def test_the_page_is_what_the_models_generate():
    assert reference_page() == PAGE.read_text(encoding="utf-8"), (
        "docs/api.md differs: make api-reference"
    )


@pytest.mark.parametrize("crd", crd_manifests().values(), ids=crd_manifests())
def test_every_field_of_the_crd_has_a_row_with_its_description(crd):
    rows_by_path = rows(reference_page())
    (short,) = crd["spec"]["names"]["shortNames"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    count = 0
    for part in ("spec", "status"):
        for path, field in fields(schema["properties"][part], f"{short}.{part}"):
            _, _, meaning = rows_by_path[path]
            assert meaning.startswith(field.get("description", "").replace("|", "¦")), path
            count += 1
    assert count > 20


@pytest.mark.parametrize(
    ("path", "kind", "default"),
    [
        ("infd.spec.model", "[object](#infdspecmodel)", "required"),
        ("infd.spec.replicas", "integer, 0 to 1000", ""),
        ("infd.spec.workload.concurrency", "integer, 1 to 1000000", "`1`"),
        ("infd.spec.placement.policy", "`LowestCost` or `FewestGPUs` or `HighestThroughput`",
         '`"LowestCost"`'),
        ("infd.spec.placement.allow", "list of string, at most 64 items", ""),
        ("infd.spec.engine.vllm.gpuMemoryUtilization", "number, above 0, at most 1", ""),
        ("infd.spec.template.metadata.labels", "map of string to string, at most 64 entries", ""),
        ("apool.spec.nodeSelector", "map of string to string, 1 to 64 entries", "required"),
        ("apool.spec.costPerGPUHour", r"string, matches `^[0-9]{1,9}(\.[0-9]{1,6})?$`", ""),
    ],
)  # fmt: skip
def test_a_row_has_the_type_the_bounds_and_the_default(path, kind, default):
    row = rows(reference_page())[path]
    assert row[:2] == [kind, default]


def test_every_validation_rule_is_there_in_words_and_in_cel():
    page = reference_page()
    for crd in crd_manifests().values():
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        nodes = [schema, *(field for _, field in fields(schema))]
        rules = [rule for node in nodes for rule in node.get("x-kubernetes-validations", [])]
        for rule in rules:
            assert f"- {rule['message']}: `{rule['rule']}`" in page


def test_the_page_is_printed_or_written(tmp_path, capsys):
    assert main(["reference"]) == 0
    assert capsys.readouterr().out == reference_page()
    assert main(["reference", "--output", str(tmp_path / "api.md")]) == 0
    assert (tmp_path / "api.md").read_text(encoding="utf-8") == reference_page()
    assert main(["reference", "--output", str(tmp_path / "none" / "api.md")]) == 2
    assert "cannot write there" in capsys.readouterr().err
