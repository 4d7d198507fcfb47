"""The InferenceDeployments of a set of files, and the objects they refer to."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tonnage.api.names import API_VERSION, INFERENCE_DEPLOYMENT, MAX_NAME_LENGTH
from tonnage.cli.documents import Document
from tonnage.cli.errors import InputError
from tonnage.kube.protocol import Kind, NotFoundError, Object
from tonnage.reconcile.key import Key

# As the CRD's own rule has it: the name is that of a Service, and a label of the pods.
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


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
        _check(document)
        key = Key(document.namespace or namespace, document.name)
        if key in found:
            raise InputError(f"{document.source}: {key} was already in {found[key].document.file}")
        found[key] = Declared(key, document)
    return list(found.values())


def _check(document: Document) -> None:
    version = document.body.get("apiVersion")
    if version != API_VERSION:
        raise InputError(f"{document.source}: apiVersion is {version!r}, expected {API_VERSION}")
    if not _NAME.fullmatch(document.name) or len(document.name) > MAX_NAME_LENGTH:
        raise InputError(
            f"{document.source}: metadata.name is {document.name!r}, expected at most "
            f"{MAX_NAME_LENGTH} lower-case letters, digits and '-', starting with a letter"
        )


class ObjectFiles:
    """Objects from files, read as if from an API server."""

    def __init__(self, documents: Iterable[Document], namespace: str) -> None:
        self._bodies = {
            (document.kind, document.namespace or namespace, document.name): document.body
            for document in documents
        }

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """The object of this name. Raises NotFoundError."""
        try:
            return self._bodies[kind.kind, namespace or "", name]
        except KeyError:
            raise NotFoundError(f"{kind.kind} {namespace}/{name} is in none of the files") from None
