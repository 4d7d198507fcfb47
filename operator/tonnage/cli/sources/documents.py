"""Reads Kubernetes objects from YAML and JSON files, as kubectl dumps them and users write them.

A file may come from an untrusted source: this module bounds its size, and `yaml_bounds` its depth
and the values that its aliases expand to, before any object is built.
"""

import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tonnage.api.text import format_steps, show_key, show_value
from tonnage.cli.errors import InputError
from tonnage.cli.sources.input_files import STDIN, input_name, read_input
from tonnage.cli.sources.shapes.field_types import FieldTypeError, check_types
from tonnage.cli.sources.shapes.objects import SHAPES, UNREAD
from tonnage.cli.sources.yaml_bounds import OutOfBoundsError, check_bounds

MAX_FILE_BYTES: Final = 128 * 1024 * 1024
"""Largest file read. 1,000 nodes as `kubectl get nodes -o json` prints them are about 8 MB, and
10,000 pods about 100 MB."""

_MANIFESTS: Final = (".json", ".yaml", ".yml")
"""Suffixes of the files that kubectl reads in a folder."""
_NO_SPACE: Final = re.compile(r"\S")


class _Loader(yaml.CSafeLoader):
    """Loads plain data only, and leaves dates as strings, as Kubernetes does."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute, replaced as a whole
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class Document:
    """One object and its file."""

    file: str
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind; empty if missing or not a string."""
        return _text(self.body.get("kind"))

    @property
    def name(self) -> str:
        """metadata.name; empty if missing or not a string."""
        return _text(self._metadata.get("name"))

    @property
    def namespace(self) -> str:
        """metadata.namespace; empty if missing or not a string."""
        return _text(self._metadata.get("namespace"))

    @property
    def source(self) -> str:
        """File, kind and name, for messages: "fleet.yaml, Node gpu-1"."""
        names = (show_key(name) for name in (self.namespace, self.name) if name)
        return f"{self.file}, {show_key(self.kind) or 'object'} {'/'.join(names)}".rstrip()

    @property
    def _metadata(self) -> dict[str, Any]:
        metadata = self.body.get("metadata")
        return metadata if isinstance(metadata, dict) else {}


def load_manifests(path: str) -> list[Document]:
    """Read all objects of a file, or of the manifests in a folder by file name, as kubectl does.

    Raises InputError naming the file and the place in it.
    """
    if path in ("", STDIN) or not Path(path).is_dir():  # Path("") is the current folder
        return load_documents(path)
    files = sorted(file for file in Path(path).iterdir() if file.suffix in _MANIFESTS)
    if not files:
        raise InputError(f"{path} holds no {', '.join(_MANIFESTS)} file")
    return [document for file in files for document in load_documents(str(file))]


def load_documents(path: str) -> list[Document]:
    """Read all objects of a file, the items of Lists one by one; `-` is standard input.

    Raises InputError naming the file and the place in it.
    """
    name = input_name(path)
    roots = [root for root in _parse(_read(path, name), name) if root is not None]
    if not roots:
        raise InputError(f"{name} is empty; expected Kubernetes objects in YAML or JSON")
    return [_check(Document(name, body)) for root in roots for body in _flatten(root, name)]


def _check(document: Document) -> Document:
    """Return the document. Raises InputError naming the object and its first field that no API
    server would have stored."""
    try:
        check_types(document.body, SHAPES.get(document.kind, UNREAD))
    except FieldTypeError as error:
        field = format_steps(error.path).removeprefix(".")
        value = "missing" if error.value is None else show_value(error.value, error.path)
        raise InputError(
            f"{document.source}: {field} is {value}, expected {error.expected}"
        ) from None
    return document


def _read(path: str, name: str) -> str:
    raw = read_input(path, MAX_FILE_BYTES)
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"{name} is larger than {MAX_FILE_BYTES // 1024**2} MiB; split it")
    # Windows PowerShell writes UTF-16 where a command's output is redirected to a file.
    encoding = "utf-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is neither UTF-8 nor UTF-16 text (byte {error.start})") from None


def _parse(text: str, name: str) -> list[Any]:
    """The roots of all documents in the text."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return list(_parse_json(text))
        except (ValueError, RecursionError):
            pass  # may be YAML's flow style, whose parser also reports the line
    try:
        check_bounds(yaml.parse(text, _Loader))
        return list(yaml.load_all(text, _Loader))
    except OutOfBoundsError as error:
        raise InputError(f"{name}, {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{name}{where}: {error.problem or 'is not YAML'}") from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: a value that YAML allows and Python cannot represent.
        raise InputError(f"{name} is not readable YAML: {str(error).splitlines()[0]}") from None


def _parse_json(text: str) -> Iterator[Any]:
    """The roots of JSON, of which `kubectl get -o json >>` writes several into a file."""
    decoder, at = json.JSONDecoder(), 0
    while start := _NO_SPACE.search(text, at):
        root, at = decoder.raw_decode(text, start.start())
        yield root


def _flatten(root: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yield the root itself, or the items of a List, whose items may be Lists."""
    if not isinstance(root, dict):
        raise InputError(
            f"{name}: expected a Kubernetes object with apiVersion and kind, found {_shorten(root)}"
        )
    pending = [root]
    while pending:
        body = pending.pop()
        if _is_list(body):
            pending.extend(reversed(list(_read_items(body, name))))
        else:
            yield body


def _is_list(body: dict[str, Any]) -> bool:
    kind = _text(body.get("kind"))
    return kind == "List" or (kind.endswith("List") and "items" in body)


def _read_items(body: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    items = body.get("items") or []
    if not isinstance(items, list):
        raise InputError(f"{name}: items of a {body['kind']} is {_shorten(items)}, expected a list")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{name}: items[{index}] is not an object: {_shorten(item)}")
        # Items of a NodeList, unlike those of a List, need not repeat their kind and version.
        kind = _text(body.get("kind")).removesuffix("List")
        version = {"apiVersion": body["apiVersion"]} if "apiVersion" in body else {}
        yield {**version, "kind": kind, **item} if kind else item


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
