"""The InferenceDeployments of a set of files, in the order in which they come to be."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.names import API_VERSION, INFERENCE_DEPLOYMENT, MAX_NAME_LENGTH
from tonnage.cli.documents import Document
from tonnage.cli.errors import InputError
from tonnage.cli.yaml_bounds import MAX_DEPTH
from tonnage.reconcile.children import parse_time
from tonnage.reconcile.key import Key

# As the CRD's own rule has it: the name is that of a Service, and a label of the pods.
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

_TYPES: Final[Mapping[str, type]] = {
    "uid": str,
    "resourceVersion": str,
    "generation": int,
    "creationTimestamp": str,
}
"""Types of the metadata that an object of a cluster has, and one of a user's files need not."""

_STATUS_LISTS: Final = {"conditions": ("type", "status", "lastTransitionTime"), "placements": ()}
"""Lists of a status that are read back, and what every entry must say."""


@dataclass(frozen=True, slots=True)
class Declared:
    """An InferenceDeployment in a file."""

    key: Key
    document: Document


def find_declared(documents: Iterable[Document], namespace: str) -> list[Declared]:
    """The InferenceDeployments among the documents; those without a namespace are in `namespace`.

    Raises InputError for one that the API server would refuse, or that stands there twice.
    """
    found: dict[Key, Declared] = {}
    for document in documents:
        if document.kind != INFERENCE_DEPLOYMENT:
            continue
        check_declared(document)
        key = Key(document.namespace or namespace, document.name)
        if key in found:
            raise InputError(f"{document.source}: {key} was already in {found[key].document.file}")
        found[key] = Declared(key, document)
    return list(found.values())


def check_declared(document: Document) -> None:
    """Raise InputError for an InferenceDeployment that no API server can have stored."""
    version = document.body.get("apiVersion")
    if version != API_VERSION:
        raise InputError(f"{document.source}: apiVersion is {version!r}, expected {API_VERSION}")
    if not _NAME.fullmatch(document.name) or len(document.name) > MAX_NAME_LENGTH:
        raise InputError(
            f"{document.source}: metadata.name is {document.name!r}, expected at most "
            f"{MAX_NAME_LENGTH} lower-case letters, digits and '-', starting with a letter"
        )
    _check_depth(document)
    metadata = document.body["metadata"]
    for name, kind in _TYPES.items():
        if not isinstance(metadata.get(name, kind()), kind):
            raise _wrong(document, f"metadata.{name}", f"{kind.__name__}", metadata[name])
    _check_time(document, "metadata.creationTimestamp", metadata.get("creationTimestamp"))
    _check_status(document, document.body.get("status") or {})


def _check_status(document: Document, status: Any) -> None:
    """What of a status is read back must be what an API server could have stored."""
    if not isinstance(status, dict):
        raise _wrong(document, "status", "an object", status)
    for name, wanted in _STATUS_LISTS.items():
        entries = status.get(name) or []
        if not isinstance(entries, list):
            raise _wrong(document, f"status.{name}", "a list", entries)
        for entry in entries:
            told = entry if isinstance(entry, dict) else {}
            if not all(isinstance(told.get(key), str) for key in wanted) or told is not entry:
                raise _wrong(
                    document, f"status.{name}[]", "an object with " + ", ".join(wanted), entry
                )
            _check_time(
                document, f"status.{name}[].lastTransitionTime", told.get("lastTransitionTime")
            )


def _check_depth(document: Document) -> None:
    """YAML is bounded as it is read; JSON has to be looked at level by level."""
    layer: list[Any] = [document.body]
    for _ in range(MAX_DEPTH):
        layer = [inner for value in layer for inner in _inside(value)]
    if layer:
        raise InputError(f"{document.source}: is nested deeper than {MAX_DEPTH} levels")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_time(document: Document, field: str, text: str | None) -> None:
    try:
        if text is not None and parse_time(text).tzinfo is None:
            raise _wrong(document, field, "a time with its zone", text)
    except ValueError:
        raise _wrong(document, field, "a time as 2026-01-31T12:00:00Z", text) from None


def _wrong(document: Document, field: str, wanted: str, value: object) -> InputError:
    return InputError(f"{document.source}: {field} is {repr(value)[:60]}, expected {wanted}")


def in_order_of_creation(declared: Iterable[Declared]) -> list[Declared]:
    """Those that exist already, oldest first as the operator takes them; then the order given."""
    there, new = [], []
    for one in declared:
        created = one.document.body["metadata"].get("creationTimestamp")
        (there.append((parse_time(created), one)) if created else new.append(one))
    there.sort(key=lambda dated: (dated[0], dated[1].key))
    return [one for _, one in there] + new
