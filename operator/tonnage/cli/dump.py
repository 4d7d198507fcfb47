"""A cluster as a dump of it tells it, read through the port that the operator reads through."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tonnage.api.names import INFERENCE_DEPLOYMENT, LABEL_OWNER
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.cli.declared import check_declared
from tonnage.cli.documents import Document
from tonnage.cli.errors import InputError
from tonnage.kube.kinds import (
    DEPLOYMENTS,
    INFERENCE_POOLS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
)
from tonnage.kube.protocol import ClusterReader, Kind, NotFoundError, Object
from tonnage.reconcile.children import is_controlled_by, read_child, read_deployment, read_pods
from tonnage.reconcile.findings import format_time
from tonnage.reconcile.priority import read_classes

_CLUSTER_SCOPED = frozenset({"Node", "AcceleratorPool", "PriorityClass"})
_CHILDREN = {
    DEPLOYMENTS.kind: read_deployment,
    SERVICES.kind: read_child,
    INFERENCE_POOLS.kind: read_child,
}

_SHORTEST_EXPONENT = 1e21
"""From here on Go's encoding/json writes a number with an exponent."""

_Place = tuple[str, str, str]
_Objects = list[Object]  # inside the class, `list` is the verb


class Dump:
    """Objects by kind, namespace and name; what the API server adds and a file lacks is added.

    An object without a uid has none of its own yet: its uid is empty. `beyond` is asked by name
    for what the dump does not hold, and for logs, but never for a Secret.

    Raises InputError for what no API server can have stored.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        namespace: str,
        now: datetime,
        beyond: ClusterReader | None = None,
    ) -> None:
        self._namespace = namespace
        self._beyond = beyond
        self._documents: dict[_Place, Document] = {}
        for document in documents:
            body = _completed(document, namespace, now)
            self._documents[self._place(document)] = replace(document, body=body)

    def apply(self, document: Document, now: datetime) -> None:
        """Let the document be applied to the dump: its spec, and all else as it was there."""
        place, body = self._place(document), _completed(document, self._namespace, now)
        live = self._documents.get(place)
        if document.kind == INFERENCE_DEPLOYMENT:
            body = body | {"spec": _stored_numbers(body.get("spec"))}
            body = self._with_uid(body) if live is None else _as_stored(body, live.body)
        self._documents[place] = replace(document, body=body)

    def documents(self, kind: str) -> list[Document]:
        """All objects of a kind, and the files they stand in."""
        return [found for found in self._documents.values() if found.kind == kind]

    def bodies(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [found.body for found in self.documents(kind)]

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """The object of this name. Raises NotFoundError."""
        found = self._documents.get((kind.kind, namespace or "", name))
        if found is not None:
            return found.body
        if self._beyond is not None and kind is not SECRETS:
            return await self._beyond.get(kind, namespace, name)
        raise NotFoundError(f"{kind.kind} {namespace}/{name} is in none of the files")

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """The objects of a kind that have these labels."""
        wanted = dict(labels or {}).items()
        return [
            body
            for body in self.bodies(kind.kind)
            if namespace in (None, body["metadata"]["namespace"])
            and wanted <= body["metadata"]["labels"].items()
        ]

    def lookup(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object of this name; None where no file has it."""
        document = self._documents.get((kind.kind, namespace or "", name))
        return None if document is None else document.body

    def owned(self, kind: Kind, owner: tuple[str, str]) -> _Objects:
        """The objects of a kind that belong to an InferenceDeployment, by their label."""
        namespace, name = owner
        return [
            body
            for body in self.bodies(kind.kind)
            if body["metadata"]["namespace"] == namespace
            and body["metadata"]["labels"].get(LABEL_OWNER) == name
        ]

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, limit_bytes: int
    ) -> str:
        """The log that the cluster behind the dump has. Raises NotFoundError."""
        if self._beyond is not None:
            return await self._beyond.pod_log(
                namespace, pod, container, previous=previous, limit_bytes=limit_bytes
            )
        raise NotFoundError(f"a dump holds no log of pod {namespace}/{pod}")

    def _with_uid(self, body: Object) -> Object:
        """The object, known by the references of its children where the dump lacks itself."""
        metadata = body["metadata"]
        own = (metadata["namespace"], metadata["name"])
        for child in self.bodies(DEPLOYMENTS.kind):
            named = (child["metadata"]["namespace"], child["metadata"]["labels"].get(LABEL_OWNER))
            if named == own and not metadata["uid"]:
                return body | {"metadata": metadata | {"uid": _controller_uid(child)}}
        return body

    def _place(self, document: Document) -> _Place:
        scoped = document.kind in _CLUSTER_SCOPED
        namespace = "" if scoped else document.namespace or self._namespace
        return document.kind, namespace, document.name


def _completed(document: Document, namespace: str, now: datetime) -> Object:
    """The object with the metadata that every stored one has. Raises InputError."""
    metadata = document.body.get("metadata")
    own: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    labels = own.get("labels")
    added = {"uid": "", "resourceVersion": "", "generation": 1}
    body = document.body | {
        "metadata": added
        | {"creationTimestamp": format_time(now)}
        | own
        | {
            "namespace": document.namespace or namespace,
            "labels": labels if isinstance(labels, dict) else {},
        }
    }
    _check(document, body)
    return body


def _check(document: Document, body: Object) -> None:
    """Read what will be read of it later, so that it is this object that is named.

    Raises InputError.
    """
    if document.kind == INFERENCE_DEPLOYMENT:
        check_declared(document)
    try:
        if document.kind == PRIORITY_CLASSES.kind:
            read_classes([body])
        elif LABEL_OWNER in body["metadata"]["labels"]:
            _read_child(document.kind, body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{document.source}: is not as an API server writes it: {type(error).__name__} {error}"
        ) from None


def _read_child(kind: str, body: Object) -> None:
    if kind == PODS.kind:
        read_pods([body])
    elif kind in _CHILDREN:
        _CHILDREN[kind](body)
        is_controlled_by(body, "")


def _as_stored(body: Object, live: Object) -> Object:
    """What the API server would make of the live object: another spec is another generation."""
    metadata = live["metadata"]
    if not _same_spec(body.get("spec"), live.get("spec")):
        metadata = metadata | {"generation": metadata["generation"] + 1}
    return live | {"spec": body.get("spec"), "metadata": metadata}


def _stored_numbers(value: Any) -> Any:
    """The value as it comes back from an API server, which writes a whole number without `.0`:
    digests of a spec would tell the two apart."""
    match value:
        case dict():
            return {key: _stored_numbers(each) for key, each in value.items()}
        case list():
            return [_stored_numbers(each) for each in value]
        case float() if value.is_integer() and abs(value) < _SHORTEST_EXPONENT:
            return int(value)
        case _:
            return value


def _same_spec(one: object, other: object) -> bool:
    try:
        return parse_spec(one) == parse_spec(other)
    except InvalidSpecError:
        return one == other


def _controller_uid(child: Object) -> str:
    """The uid of the InferenceDeployment that controls a child; empty where none does."""
    for owner in child["metadata"].get("ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") == INFERENCE_DEPLOYMENT:
            return str(owner.get("uid", ""))
    return ""
