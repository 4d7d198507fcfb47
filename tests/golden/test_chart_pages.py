"""The table of values in each chart's README is what its schema and its values say."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CHARTS = Path(__file__).parents[2] / "charts"
START = "<!-- values: from values.schema.json and values.yaml, by `make golden` -->\n"
END = "<!-- end of values -->\n"
FIELDS_OF_A_POD = ("resources", "affinity")  # each is one value, and Kubernetes describes it


@pytest.mark.parametrize("chart", ["tonnage", "tonnage-crds"])
def test_the_table_of_values_is_what_the_schema_says(chart: str) -> None:
    page = CHARTS / chart / "README.md"
    before, rest = page.read_text(encoding="utf-8").split(START)
    shown, after = rest.split(END)
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text(encoding="utf-8"))
    want = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows(schema, values)])
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        page.write_text(f"{before}{START}{want}\n{END}{after}", encoding="utf-8")
    else:
        assert shown == f"{want}\n", f"{page.name} differs: `make golden`, then read the diff"


def rows(schema: dict[str, Any], values: dict[str, Any], path: str = "") -> Iterator[str]:
    """A row for each value that a user sets as a whole, in the order of the schema."""
    for name, inner in schema["properties"].items():
        if name == "global":  # a parent chart's, never set here
            continue
        where, value = f"{path}{name}", values.get(name)
        if "properties" in inner and name not in FIELDS_OF_A_POD:
            yield from rows(inner, value or {}, f"{where}.")
        else:
            default = inner.get("default", value)
            yield f"| `{where}` | {shown_default(default)} | {inner['description']} |"


def shown_default(value: Any) -> str:
    if isinstance(value, list) and value:
        return "see values.yaml"
    return "" if value is None else f"`{json.dumps(value)}`"
