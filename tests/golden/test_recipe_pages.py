"""The pages that teach how to extend Tonnage are followed, step by step, on a copy.

A block after a paragraph that ends in a file's name is put into that file: YAML is merged into a
data file, a diff is applied, anything else is the file. Commands of `tonnage` are run, and what
they print is what the page shows; `make golden` puts it there.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COPIED = ("operator/tonnage", "tests/data/configs", "tests/data/nodes")

BLOCK = re.compile(
    r"(?:`(?P<file>[\w./-]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
QUESTION = re.compile(r"\$ (?P<question>[^\n]*)\n(?P<answer>(?:(?!\$ )[^\n]*\n)*)")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the steps change, apart from the work tree."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    """Put entries where an editor would: at the end of lists, next to others in mappings."""
    for key, value in more.items():
        match value:
            case list():
                into[key] = [*into.get(key, []), *value]
            case dict():
                merge(into.setdefault(key, {}), value)
            case _:
                into[key] = value


def change(path: Path, language: str, text: str, copy: Path) -> None:
    """Carry out one step on a file of the copy."""
    if language == "diff":
        command = ["git", "apply", "--recount", "-"]
        subprocess.run(command, cwd=copy, input=text, text=True, check=True)
    elif language == "yaml" and path.exists():
        content = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        merge(content, yaml.safe_load(text))
        path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper), encoding="utf-8")
    else:
        path.write_text(text, encoding="utf-8")


def answer(question: str, copy: Path) -> str:
    """What `tonnage` of the copy prints, piped through what the page pipes it through."""
    command, _, rest = question.partition(" | ")
    words = [sys.executable, "-P", "-m", *shlex.split(command)]
    result = subprocess.run(
        words,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "operator")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == "", f"{question}: {result.stderr}"
    lines = [line.rstrip() for line in result.stdout.rstrip().splitlines()]
    if rest:
        program, wanted = rest.split()
        assert program == "grep"
        lines = [line for line in lines if wanted in line]
    return "".join(f"{line}\n" for line in lines)


def follow(page: str, copy: Path) -> str:
    """The page with what is printed now, after every step before it was taken."""

    def ask(match: re.Match[str]) -> str:
        question = match["question"]
        shown = answer(question, copy) if question.startswith("tonnage ") else match["answer"]
        return f"$ {question}\n{shown}"

    def step(match: re.Match[str]) -> str:
        if match["language"] == "console":
            return match[0].replace(match["text"], QUESTION.sub(ask, match["text"]))
        assert match["file"], f"no file is named before {match['text'][:60]!r}"
        change(copy / match["file"], match["language"], match["text"], copy)
        return match[0]

    return BLOCK.sub(step, page)


@pytest.mark.parametrize("name", ["adding-an-accelerator.md", "adding-a-model-family.md"])
def test_the_steps_of_the_page_give_the_outputs_that_it_shows(name: str, copy: Path) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    want = follow(page, copy)
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (DOCS / name).write_text(want, encoding="utf-8")
        return
    assert page == want, f"docs/{name} differs: `make golden`, then read the diff"


def test_a_step_that_edits_a_file_keeps_its_other_content() -> None:
    content = {"a": [1], "b": {"c": 1}, "d": 2}
    merge(content, {"a": [2], "b": {"e": [3]}, "f": {"g": 1}})
    assert content == {"a": [1, 2], "b": {"c": 1, "e": [3]}, "d": 2, "f": {"g": 1}}
