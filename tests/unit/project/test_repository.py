"""Guards of the repository itself: what review would have to remember otherwise."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml

from tonnage.api.conditions import ConditionType, Reason
from tonnage.placement.reasons import ChosenReason, FeasibleReason, RejectedReason

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "operator" / "tonnage"
MODULES = sorted(PACKAGE.rglob("*.py"))
PURE_PACKAGES = (
    "api",
    "catalog",
    "fit",
    "throughput",
    "fleet",
    "demand",
    "placement",
    "engines",
    "workloads",
    "reconcile/observation",
    "reconcile/rollout",
    "reconcile/scheduling",
    "reconcile/status",
)
PURE_MODULES = (
    "reconcile/accept.py",
    "reconcile/actions.py",
    "reconcile/autoscaling.py",
    "reconcile/calibration.py",
    "reconcile/integrations/endpoints.py",
    "reconcile/integrations/gateway.py",
    "reconcile/plan.py",
)
IMPORT_NAMES = {"prometheus-api-client": "prometheus_api_client", "PyYAML": "yaml"}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CONSTRUCTOR_ARGUMENTS = 8


@cache
def tracked_files():
    """Files that are, or are about to be, in the repository; a source archive has no .git."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git work tree")
    names = listing.stdout.decode().split("\0")
    return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())


@cache
def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def text_of(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def name_of(requirement):
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def relative(path):
    return str(path.relative_to(ROOT))


def test_the_package_never_shadows_the_standard_librarys_operator():
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "tests" / "operator").exists()
    result = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.eq(1, 1))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "True"


def test_every_folder_of_the_package_has_a_docstring():
    for folder in {path.parent for path in MODULES}:
        assert ast.get_docstring(parse(folder / "__init__.py")), f"{relative(folder)} says nothing"


@pytest.mark.parametrize("package", ["catalog", "checkpoint", "demand", "fit"])
def test_the_map_of_a_large_package_names_exactly_its_modules(package):
    folder = PACKAGE / package
    named = set(re.findall(r"`([a-z_0-9]+)`", ast.get_docstring(parse(folder / "__init__.py"))))
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert named == modules | packages


MOST_MODULES = 18
"""A folder with more of them has more than one subject."""


def test_a_folder_has_a_limited_number_of_modules():
    counts = Counter(path.parent for path in tracked_files() if path.suffix == ".py")
    assert {str(folder): count for folder, count in counts.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_file_has_a_limited_length(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES, f"{lines} lines: split it by ideas"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_function_has_a_limited_length(path):
    too_long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    }
    assert not too_long, f"lines by function: {too_long}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_constructor_takes_few_arguments(path):
    """Of classes that do something; the fields of a record are data."""
    too_many = {
        owner.name: len(node.args.args) - 1 + len(node.args.kwonlyargs)
        for owner in ast.walk(parse(path))
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and len(node.args.args) - 1 + len(node.args.kwonlyargs) > MAX_CONSTRUCTOR_ARGUMENTS
    }
    assert not too_many, f"arguments by class: {too_many}"


def pure_modules():
    for package in PURE_PACKAGES:
        yield from sorted((PACKAGE / package).rglob("*.py"))
    yield from (PACKAGE / module for module in PURE_MODULES)


@pytest.mark.parametrize("path", list(pure_modules()), ids=relative)
def test_a_pure_module_reads_no_clock_and_prints_nothing(path):
    # What would need an import is a contract in .importlinter; these calls need none, or only
    # that of a type (datetime).
    calls = [node.func for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    names = {
        func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls
    }
    assert not names & {"now", "utcnow", "today", "open", "print", "input"}


@cache
def imported_packages():
    return {
        module.split(".")[0]
        for path in MODULES
        for node in ast.walk(parse(path))
        for module in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }


@pytest.mark.parametrize("requirement", project()["project"]["dependencies"], ids=name_of)
def test_every_runtime_dependency_is_imported_and_explained(requirement):
    name = name_of(requirement)
    wanted = IMPORT_NAMES.get(name, name)
    assert wanted in imported_packages(), f"{name} is a dependency that nothing imports"
    assert f"`{name}`" in dependencies_page(), f"{name} has no reason in ADR 0008"


def development_dependencies():
    groups = project()["dependency-groups"].values()
    return [
        requirement for group in groups for requirement in group if isinstance(requirement, str)
    ]


@pytest.mark.parametrize("requirement", development_dependencies(), ids=name_of)
def test_every_development_dependency_is_explained(requirement):
    assert f"`{name_of(requirement)}`" in dependencies_page()


def dependencies_page():
    return (ROOT / "docs" / "adr" / "0008-dependencies.md").read_text(encoding="utf-8")


def locked(name):
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", text, re.MULTILINE)), text


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_files_agree_and_have_a_hash_for_everything():
    every, _ = locked("dev.lock")
    for name in ("dev.lock", "run.lock", "build.lock"):
        pinned, text = locked(name)
        assert pinned.items() <= every.items()
        for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
            assert "--hash=sha256:" in block, f"{name}: {block.splitlines()[0]} has no hash"


def test_the_runtime_lock_has_every_runtime_dependency():
    run, _ = locked("run.lock")
    wanted = {normalised(name_of(item)) for item in project()["project"]["dependencies"]}
    assert wanted <= {normalised(name) for name in run}


# Written in pieces, so that this file is not what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("registry", "npmjs", "org"),
        ("crates", "io"),
        ("repo1", "maven", "org"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("docker", "io"),
        ("nvcr", "io"),
        ("gcr", "io"),
        ("registry", "k8s", "io"),
    )
]
MACHINE_PATHS = ["/" + part for part in ("root/", "work/", "home/", "opt/wheels", "Users/")]


def places_of(pattern):
    """Where the pattern occurs in the files of the repository, with what it matched."""
    return {
        f"{relative(path)}: {match[0]}"
        for path in tracked_files()
        for match in re.finditer(pattern, text_of(path))
    }


def test_no_registry_host_is_named():
    hosts = "|".join(re.escape(host) for host in REGISTRY_HOSTS)
    assert places_of(rf"(?<![\w.-])({hosts})(?![\w-])") == set()


def test_no_local_path_is_named():
    assert places_of("|".join(rf"(?<![\w.}}/-]){path}" for path in MACHINE_PATHS)) == set()


def test_every_decision_record_is_in_the_index():
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    records = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert re.findall(r"\((\d{4}-[a-z0-9-]+\.md)\)", index) == records


@pytest.mark.parametrize(
    "word", [*ConditionType, *Reason, *ChosenReason, *FeasibleReason, *RejectedReason]
)
def test_every_condition_and_reason_is_documented(word):
    page = (ROOT / "docs" / "conditions.md").read_text(encoding="utf-8")
    assert f"`{word}`" in page


def test_the_makefile_explains_every_public_target():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: ([a-z-]+)$", text, re.MULTILINE))
    explained = set(re.findall(r"^([a-z-]+):.* ## \S", text, re.MULTILINE))
    assert phony == explained


def test_ci_does_what_a_developer_does():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "exec make test" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_shipped_yaml_has_no_tabs_and_parses():
    for path in (*(ROOT / "manifests").rglob("*.yaml"), *(ROOT / "crds").glob("*.yaml")):
        assert list(yaml.safe_load_all(path.read_text(encoding="utf-8"))), relative(path)
