"""Checks the objects of Tonnage in a set of files, and sorts the InferenceDeployments."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.names import (
    ACCELERATOR_POOL,
    API_VERSION,
    INFERENCE_DEPLOYMENT,
    MAX_NAME_LENGTH,
)
from tonnage.api.text import show_value
from tonnage.cli.errors import InputError
from tonnage.cli.sources.documents import Document
from tonnage.cli.sources.namespaces import is_namespace_name
from tonnage.cli.sources.yaml_bounds import MAX_DEPTH
from tonnage.kube.kinds import NODES
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.findings import parse_time

_NAMES: Final[Mapping[str, tuple[re.Pattern[str], int, str]]] = {
    # The CRD has the same rule: the name becomes that of a Service and a label of the pods.
    INFERENCE_DEPLOYMENT: (
        re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"),
        MAX_NAME_LENGTH,
        "lower-case letters, digits and '-', starting with a letter",
    ),
    ACCELERATOR_POOL: (
        re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"),
        253,
        "lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    ),
}
"""The names of each kind: their pattern, their length, and both in words."""

_UNIQUE: Final = frozenset({INFERENCE_DEPLOYMENT, ACCELERATOR_POOL, NODES.kind})

_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")


@dataclass(frozen=True, slots=True)
class Declared:
    """An InferenceDeployment in a file."""

    key: Key
    document: Document


def find_declared(documents: Iterable[Document], namespace: str) -> list[Declared]:
    """The InferenceDeployments among the documents, in `namespace` if they name none.

    Raises InputError for an object of Tonnage that no API server would store, and for a duplicate.
    """
    own = [document for document in documents if document.kind in _NAMES]
    for document in own:
        check_declared(document)
    refuse_duplicates(own, namespace)
    return [
        Declared(Key(document.namespace or namespace, document.name), document)
        for document in own
        if document.kind == INFERENCE_DEPLOYMENT
    ]


def refuse_duplicates(documents: Iterable[Document], namespace: str) -> None:
    """Raise InputError for an object of Tonnage, or a Node, that two documents describe: one of
    them would be ignored."""
    files: dict[tuple[str, str | Key], str] = {}
    for document in documents:
        if document.kind not in _UNIQUE:
            continue
        is_namespaced = document.kind == INFERENCE_DEPLOYMENT
        name = Key(document.namespace or namespace, document.name)
        key = (document.kind, name if is_namespaced else document.name)
        if key in files:
            raise InputError(f"{document.source}: {key[1]} was already in {files[key]}")
        files[key] = document.file


def check_declared(document: Document) -> None:
    """Raise InputError for an object of Tonnage that no API server could have stored."""
    name_pattern, max_length, expected = _NAMES[document.kind]
    version = document.body.get("apiVersion")
    if version != API_VERSION:
        problem = "is missing" if version is None else f"is {show_value(version)}"
        raise InputError(f"{document.source}: apiVersion {problem}, expected {API_VERSION}")
    if not name_pattern.fullmatch(document.name) or len(document.name) > max_length:
        raise InputError(
            f"{document.source}: metadata.name is {show_value(document.name)}, expected at most "
            f"{max_length} {expected}"
        )
    _check_depth(document)
    unknown = next((name for name in document.body if name not in _FIELDS), None)
    if unknown is not None:
        raise InputError(
            f"{document.source}: {str(unknown)[:60]!r} is none of {', '.join(_FIELDS)}; fields of "
            "the spec are indented below spec"
        )
    metadata = document.body["metadata"]
    if "namespace" in metadata and not is_namespace_name(metadata["namespace"]):
        raise _invalid(document, "metadata.namespace", "a DNS label", metadata["namespace"])


def _check_depth(document: Document) -> None:
    """Check the depth level by level: the parser bounds YAML, but not JSON."""
    level: list[Any] = [document.body]
    for _ in range(MAX_DEPTH):
        level = [nested for value in level for nested in _nested_values(value)]
    if level:
        raise InputError(f"{document.source}: is nested deeper than {MAX_DEPTH} levels")


def _nested_values(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _invalid(document: Document, field: str, expected: str, value: object) -> InputError:
    return InputError(f"{document.source}: {field} is {show_value(value)}, expected {expected}")


def sort_by_creation(declared: Iterable[Declared]) -> list[Declared]:
    """Existing objects, oldest first as the operator plans them; then new ones as given."""
    existing, new = [], []
    for one in declared:
        created = one.document.body["metadata"].get("creationTimestamp")
        (existing.append((parse_time(created), one)) if created else new.append(one))
    existing.sort(key=lambda dated: (dated[0], dated[1].key))
    return [one for _, one in existing] + new
