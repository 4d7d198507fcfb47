"""Whether a code block of a page is what its language says, and could be used as it stands."""

import ast
import json
import tomllib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import yaml
from pydantic import ValidationError

from tests.support.pages.markdown_pages import Block
from tests.support.pages.page_commands import complaints_about
from tests.support.pages.shell_lines import typed_commands
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ACCELERATOR_POOL, GROUP, INFERENCE_DEPLOYMENT, VERSION
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.api.schema import ApiModel

Complaint = tuple[int, str]

KINDS: dict[str, type[ApiModel]] = {
    INFERENCE_DEPLOYMENT: InferenceDeploymentSpec,
    ACCELERATOR_POOL: AcceleratorPoolSpec,
}

_NAMELESS = {"Kustomization", "Component", "List"}
_SHELLS = ("console", "sh", "bash")

UNCHECKED = {
    "": "output and drawings",
    "text": "output",
    "diff": "output",
    "mermaid": "a drawing",
    "lua": "taken from a file that Argo CD's own Lua runs in the tests",
    "promql": "run by promtool and a real Prometheus where it is shipped",
}
"""Languages of which nothing is checked here, each with the reason."""


def complaints(block: Block, made: Collection[str] = ()) -> Iterator[Complaint]:
    """What is wrong with a block: the line in its page, and what was expected."""
    judge = _JUDGES.get(block.language)
    if block.language in _SHELLS:
        yield from _shell(block, made)
    elif judge is not None:
        yield from judge(block)
    elif block.language not in UNCHECKED:
        yield block.line, f"language {block.language!r} is not known: expected one of {_known()}"
    elif block.language == "":
        for number, line in enumerate(block.text.splitlines(), block.line):
            if line.startswith("$ "):
                yield number, "a block with a command must say that it is a `console`"


def _known() -> list[str]:
    return sorted([*_SHELLS, *_JUDGES, *UNCHECKED])


def _shell(block: Block, made: Collection[str]) -> Iterator[Complaint]:
    prompt = block.language == "console"
    if prompt and not any(line.startswith("$ ") for line in block.text.splitlines()):
        yield block.line, "a console shows what is typed after `$ `; this one has no such line"
    try:
        commands = list(typed_commands(block.text, block.line, prompt=prompt))
    except ValueError as error:
        yield block.line, f"no shell reads this: {error}"
        return
    for command in commands:
        yield from ((command.line, text) for text in complaints_about(command, made))
        if command.given and command.words[0] == "kubectl":
            yield from _yaml(Block(command.line + 1, "yaml", command.given))


def _yaml(block: Block) -> Iterator[Complaint]:
    try:
        documents = list(yaml.safe_load_all(block.text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        offset = mark.line if mark else 0
        yield block.line + offset, f"not YAML: {getattr(error, 'problem', error)}"
        return
    for document in documents:
        if isinstance(document, dict):
            yield from ((block.line, text) for text in _object(document))


def _object(document: dict[str, Any]) -> Iterator[str]:
    """A whole Kubernetes object, or a piece of one of ours."""
    version, kind = document.get("apiVersion"), document.get("kind")
    if version is None and kind is None:
        yield from _piece(document)
    elif version is None or kind is None:
        yield "an object names both apiVersion and kind"
    elif kind not in _NAMELESS and not document.get("metadata", {}).get("name"):
        yield f"{kind} has no metadata.name"
    elif str(version).startswith(f"{GROUP}/"):
        yield from _ours(str(version), str(kind), document)


def _ours(version: str, kind: str, document: dict[str, Any]) -> Iterator[str]:
    if version != f"{GROUP}/{VERSION}" or kind not in KINDS:
        yield f"{version} {kind}: expected {GROUP}/{VERSION} and one of {sorted(KINDS)}"
        return
    try:
        parse_model(KINDS[kind], document.get("spec"), "spec")
    except InvalidSpecError as error:
        yield f"{kind} {document['metadata']['name']}: {error}"


def _piece(document: dict[str, Any]) -> Iterator[str]:
    """A `spec:` alone must be a piece of one of our kinds: no wrong field, no wrong value."""
    if set(document) != {"spec"}:
        return
    wrong = {kind: list(_wrong_fields(model, document["spec"])) for kind, model in KINDS.items()}
    if all(wrong.values()):
        yield f"no piece of a {' or '.join(KINDS)}: {wrong}"


def _wrong_fields(model: type[ApiModel], spec: object) -> Iterator[str]:
    try:
        model.model_validate(spec)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            if problem["type"] != "missing":
                yield f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _parsed_by(parse: Callable[[str], object]) -> Callable[[Block], Iterator[Complaint]]:
    def judge(block: Block) -> Iterator[Complaint]:
        try:
            parse(block.text)
        except (ValueError, SyntaxError) as error:
            yield block.line, f"not {block.language}: {error}"

    return judge


def _json_values(text: str) -> None:
    """One value, or one a line."""
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


_JUDGES: dict[str, Callable[[Block], Iterator[Complaint]]] = {
    "yaml": _yaml,
    "json": _parsed_by(_json_values),
    "python": _parsed_by(ast.parse),
    "toml": _parsed_by(tomllib.loads),
}
