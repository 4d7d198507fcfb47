"""Only its own folders know an engine: everything else asks `engines.interface`."""

import ast
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[3] / "operator" / "tonnage"
ENGINES: Final = frozenset(path.parent.name for path in PACKAGE.glob("engines/*/__init__.py"))
NEUTRAL: Final = (
    "cli/explain",
    "cli/plan",
    "cli/sources",
    "controller",
    "demand",
    "engines",
    "informers",
    "kube",
    "manager",
    "placement",
    "reconcile",
    "telemetry",
    "workloads",
)
"""Packages that serve every engine."""

NAMED: Final = {
    "cli/plan/advice.py": "its advice is about vLLM's settings",
    "controller/settings.py": "help of settings, with examples",
    "engines/image_mirrors.py": "an example of an image's name",
    "engines/registry.py": "it registers the engines",
    "placement/filters/screening.py": "accelerators of the catalogue are those that vLLM supports",
    "workloads/pod/allowed.py": "why a field is refused, whatever the engine",
}
"""Modules that name an engine in their code, and why."""


def modules() -> list[Path]:
    of_engines = [PACKAGE / "engines" / name for name in ENGINES]
    return [
        path
        for package in NEUTRAL
        for path in sorted((PACKAGE / package).rglob("*.py"))
        if not any(path.is_relative_to(folder) for folder in of_engines)
    ]


def named_in(tree: ast.AST) -> set[str]:
    """Identifiers and texts that name an engine, without docstrings and imports of the catalogue,
    which has the types of images."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case ast.ImportFrom(module=str(module)) if not module.startswith("tonnage.catalog."):
                names.add(module)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    names |= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in docstrings
    }
    return {name for name in names if any(engine in name.lower() for engine in ENGINES)}


def test_the_engines_are_known() -> None:
    assert "vllm" in ENGINES


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_for_every_engine_names_none(path: Path) -> None:
    names = named_in(ast.parse(path.read_text(encoding="utf-8")))
    if str(path.relative_to(PACKAGE)) in NAMED:
        assert names, "the exception is not needed"
    else:
        assert names == set()
