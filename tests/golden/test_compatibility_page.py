"""docs/compatibility.md is what the rules generate."""

from pathlib import Path

from tonnage.catalog.load import load_catalog
from tonnage.cli.commands.rules import rules_page

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_page_is_what_the_rules_generate() -> None:
    want = PAGE.read_text(encoding="utf-8")
    assert rules_page(load_catalog()) == want, (
        "docs/compatibility.md differs: tonnage rules --output docs/compatibility.md"
    )
