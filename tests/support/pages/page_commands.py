"""Whether a command that a page shows could be typed: program, options, targets and files exist."""

import contextlib
import io
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import yaml

from tests.support.pages.markdown_pages import ROOT
from tests.support.pages.shell_lines import Command
from tonnage.cli.main import SUBCOMMANDS, build_parser, load_subcommand

Complaints = Iterator[str]

OTHER_PROGRAMS = {
    "argocd", "base64", "buildah", "cat", "cd", "cosign", "cp", "curl", "diff", "docker", "echo",
    "export", "flux", "git", "grep", "head", "jq", "kustomize", "less", "ls", "mkdir", "open",
    "pip-audit", "podman", "promtool", "rm", "sed", "sort", "source", "tail", "tar", "tee", "test",
    "wc", "yq",
}  # fmt: skip
"""The reader's programs. Of their words only files of this repository are looked at."""

DEVELOPMENT = {"hatchling", "lint-imports", "mypy", "pytest", "ruff"}
"""Programs that the lock file installs."""

KUBECTL = {
    "annotate", "api-resources", "apply", "auth", "config", "cordon", "create", "delete",
    "describe", "diff", "drain", "edit", "events", "explain", "get", "kustomize", "label", "logs",
    "patch", "port-forward", "replace", "rollout", "scale", "top", "uncordon", "version", "wait",
}  # fmt: skip
HELM = {
    "dependency", "get", "history", "install", "lint", "list", "package", "pull", "push", "repo",
    "rollback", "show", "status", "template", "test", "uninstall", "upgrade",
}  # fmt: skip


def complaints_about(command: Command, made: Collection[str] = ()) -> Complaints:
    """What is wrong with a command, in words that say what was expected."""
    program, *arguments = command.words
    yield from missing_files(arguments, made)
    if program.startswith(".venv/bin/"):
        program = program.removeprefix(".venv/bin/")
        if not (Path(sys.executable).parent / program).exists():
            yield f".venv/bin/{program} is not installed by the lock file"
    judge = _JUDGES.get(Path(program).name)
    if judge is not None:
        yield from judge(arguments)
    elif Path(program).name not in OTHER_PROGRAMS | DEVELOPMENT and not (ROOT / program).is_file():
        yield f"{program} is no program that is known: correct it, or add it to OTHER_PROGRAMS"


def complaints_about_words(text: str, made: Collection[str] = ()) -> Complaints:
    """The same for code in a sentence, which may leave arguments out (`tonnage plan --diff`)."""
    words = text.split()
    if words[:2] == ["kubectl", "tonnage"]:
        words = words[1:]
    match words:
        case ["make", *targets] if targets:
            yield from _make(targets)
        case ["tonnage", name, *options] if name[0].isalpha():
            yield from _known_options(name, options)
        case [one] if "/" in one:
            yield from missing_files([one], made)


def missing_files(words: Iterable[str], made: Collection[str] = ()) -> Complaints:
    """Words that name a file of this repository that is not there, nor made by the reader."""
    for word in words:
        for path in _expanded(word.rpartition("=")[2] if word.startswith("-") else word):
            ours = path.split("/")[0] in _folders() and path not in made
            if ours and not any(ROOT.glob(path.rstrip("/"))):
                yield f"{path} is not in this repository"


@cache
def _folders() -> frozenset[str]:
    return frozenset(
        path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")
    ) - {"dist", "build"}


def _expanded(word: str) -> list[str]:
    """The paths that a word stands for; none where it is an expression.

    From a part in capitals on (`docs/FILE`) it is the reader's to fill in.
    """
    if re.search(r"[^\w./*{},-]|\.\.\.", word) or word.startswith("/"):
        return []
    known = re.sub(r"/[A-Z_]+(/.*)?$", "", word)
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", known)
    return [f"{match[1]}{one}{match[3]}" for one in match[2].split(",")] if match else [known]


def _tonnage(arguments: list[str]) -> Complaints:
    """`NAMESPACE` is the reader's to fill in; the parser refuses capitals there."""
    filled = ["chat" if word == "NAMESPACE" else word for word in arguments]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            build_parser(filled[0] if filled else None).parse_args(filled)
    except SystemExit as ended:
        if ended.code:
            yield printed.getvalue().strip().splitlines()[-1]


def _known_options(name: str, words: list[str]) -> Complaints:
    if name not in SUBCOMMANDS:
        yield f"tonnage {name} is no subcommand: expected one of {', '.join(SUBCOMMANDS)}"
        return
    parser = ArgumentParser()
    load_subcommand(name).add_arguments(parser)
    # argparse has no public way to list the options.
    known = {option for action in parser._actions for option in action.option_strings}
    for word in words:
        option = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", option) and option not in known:
            yield f"tonnage {name} has no option {option}: it has {', '.join(sorted(known))}"


def _make(arguments: list[str]) -> Complaints:
    for target in arguments:
        if "=" not in target and not target.startswith("-") and target not in make_targets():
            yield f"make has no target {target}: `make` lists them"


@cache
def make_targets() -> frozenset[str]:
    """The targets that people call."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\.PHONY: ([a-z-]+)$", makefile, re.MULTILINE))


def _kubectl(arguments: list[str]) -> Complaints:
    words = _without_options(arguments, "-n", "--namespace", "--context", "--kubeconfig")
    if words[:1] == ["tonnage"]:
        yield from _tonnage(words[1:])
    else:
        yield from _verb("kubectl", words, KUBECTL)


def _helm(arguments: list[str]) -> Complaints:
    yield from _verb("helm", _without_options(arguments, "-n", "--namespace"), HELM)
    if "charts/tonnage" in arguments:
        given = [
            word.partition("=")[0] for option, word in pairwise(arguments) if "--set" in option
        ]
        yield from (f"charts/tonnage has no value {path}" for path in given if not _is_value(path))


def _is_value(path: str) -> bool:
    """Whether the chart has the value; below an empty mapping the keys are the user's."""
    values = yaml.safe_load((ROOT / "charts/tonnage/values.yaml").read_text(encoding="utf-8"))
    for name in path.split("."):
        if values == {}:
            return True
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _verb(program: str, words: list[str], known: set[str]) -> Complaints:
    if not words or (words[0] not in known and not words[0].startswith("-")):
        yield f"{program} {' '.join(words[:1])}: expected one of {', '.join(sorted(known))}"


def _without_options(arguments: list[str], *names: str) -> list[str]:
    """The arguments from the verb on: options with a value may stand before it."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in names else 1]
    return rest


def _python(arguments: list[str]) -> Complaints:
    match [word for word in arguments if word != "-P"]:
        case ["-m", "tonnage", *rest]:
            yield from _tonnage(rest)
        case ["-m", module, *_] if not _is_module(module):
            yield f"there is no module {module} to run with python -m"


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


_JUDGES: dict[str, Callable[[list[str]], Complaints]] = {
    "tonnage": _tonnage,
    "kubectl-tonnage": _tonnage,
    "make": _make,
    "kubectl": _kubectl,
    "helm": _helm,
    "python": _python,
    "python3": _python,
}
