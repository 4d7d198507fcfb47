"""A cluster dump behind the read interface that the operator uses for a live cluster."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tonnage.api.names import INFERENCE_DEPLOYMENT, owner_of
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.cli.sources.declared import check_declared, refuse_duplicates
from tonnage.cli.sources.documents import Document
from tonnage.informers.owners import owner_keys
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    DEVICE_CLASSES,
    LEADER_WORKER_SETS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    PRIORITY_CLASSES,
    RESOURCE_SLICES,
    SECRETS,
)
from tonnage.kube.protocol import (
    ClusterReader,
    Kind,
    Labels,
    NotFoundError,
    Object,
    ObjectParts,
    Selection,
    has_labels,
)
from tonnage.reconcile.observation.findings import format_time
from tonnage.workloads.registry import WORKLOAD_KINDS

_CLUSTER_SCOPED = frozenset(
    kind.kind
    for kind in (
        NODES,
        ACCELERATOR_POOLS,
        PRIORITY_CLASSES,
        NAMESPACES,
        PERSISTENT_VOLUMES,
        RESOURCE_SLICES,
        DEVICE_CLASSES,
    )
)

GROUP_KINDS: Final = frozenset({LEADER_WORKER_SETS, COMPUTE_DOMAINS})
"""Kinds for replicas on several nodes, which a cluster may lack."""

_SHORTEST_EXPONENT = 1e21
"""Go's encoding/json writes this number and larger ones with an exponent."""

_ObjectKey = tuple[str, str, str]
"""Kind, namespace and name."""
_Objects = list[Object]  # inside the class, `list` is the method


class Dump:
    """Objects by kind, namespace and name, with defaults for metadata that the API server sets.

    An object that no API server has stored yet has an empty uid. `fallback` serves objects by name
    that the dump lacks, and logs, but never a Secret. `group_kinds` are those of GROUP_KINDS that
    the cluster has.

    Raises InputError for an object that no API server could have stored.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        namespace: str,
        now: datetime,
        fallback: ClusterReader | None = None,
        *,
        group_kinds: Collection[Kind] = (),
    ) -> None:
        self.group_kinds: Final = group_kinds
        self._namespace = namespace
        self._fallback = fallback
        self._documents: dict[_ObjectKey, Document] = {}
        stored = list(documents)
        refuse_duplicates(stored, namespace)
        for document in stored:
            body = _complete_metadata(document, namespace, now)
            self._documents[self._object_key(document)] = replace(document, body=body)

    def apply(self, document: Document, now: datetime) -> None:
        """Apply the document to the dump: replace the spec and keep all other fields."""
        key = self._object_key(document)
        body = _complete_metadata(document, self._namespace, now)
        live = self._documents.get(key)
        if document.kind == INFERENCE_DEPLOYMENT:
            body = body | {"spec": _normalize_numbers(body.get("spec"))}
            body = self._with_uid(body) if live is None else _apply_spec(body, live.body)
        self._documents[key] = replace(document, body=body)

    def documents(self, kind: str) -> list[Document]:
        """All objects of a kind, with their files."""
        return [document for document in self._documents.values() if document.kind == kind]

    def bodies(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [document.body for document in self.documents(kind)]

    def workloads(self) -> list[Object]:
        """All objects of the kinds that run replicas."""
        return [body for kind in WORKLOAD_KINDS for body in self.bodies(kind.kind)]

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """The object of this name. Raises NotFoundError."""
        body = self.lookup(kind, namespace, name)
        if body is not None:
            return body
        if self._fallback is not None and kind is not SECRETS:
            return await self._fallback.get(kind, namespace, name)
        raise NotFoundError(f"{kind.kind} {namespace}/{name} is in none of the files")

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> list[Object]:
        """The objects of a kind with these labels."""
        return [
            body
            for body in self.bodies(kind.kind)
            if namespace in (None, body["metadata"]["namespace"]) and has_labels(body, labels or {})
        ]

    async def list_first(self, selection: Selection, parts: ObjectParts, limit: int) -> _Objects:
        """None: what is read so, such as Events, is in no dump."""
        return []

    def lookup(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object of this name; None if no file has it."""
        document = self._documents.get((kind.kind, namespace or "", name))
        return None if document is None else document.body

    def owned(self, kind: Kind, owner: tuple[str, str]) -> _Objects:
        """The objects of a kind that belong to an InferenceDeployment (`owners.owner_keys`)."""
        return [body for body in self.bodies(kind.kind) if owner in owner_keys(kind, body)]

    async def pod_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool,
        limit_bytes: int,
        timestamps: bool = False,
    ) -> str:
        """The log from `fallback`. Raises NotFoundError without it."""
        if self._fallback is not None:
            return await self._fallback.pod_log(
                namespace,
                pod,
                container,
                previous=previous,
                limit_bytes=limit_bytes,
                timestamps=timestamps,
            )
        raise NotFoundError(f"a dump holds no log of pod {namespace}/{pod}")

    def _with_uid(self, body: Object) -> Object:
        """The object with the uid that its children in the dump refer to."""
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"])
        for child in self.workloads():
            owner = (child["metadata"]["namespace"], owner_of(child["metadata"]["labels"]))
            if owner == key and not metadata["uid"]:
                return body | {"metadata": metadata | {"uid": _controller_uid(child)}}
        return body

    def _object_key(self, document: Document) -> _ObjectKey:
        cluster_scoped = document.kind in _CLUSTER_SCOPED
        namespace = "" if cluster_scoped else document.namespace or self._namespace
        return document.kind, namespace, document.name


def _complete_metadata(document: Document, namespace: str, now: datetime) -> Object:
    """The object with the metadata of every stored object. Raises InputError."""
    if document.kind in (INFERENCE_DEPLOYMENT, ACCELERATOR_POOLS.kind):
        check_declared(document)
    own = document.body.get("metadata") or {}
    defaults = {"uid": "", "resourceVersion": "", "generation": 1, "labels": {}}
    return document.body | {
        "metadata": defaults
        | {"creationTimestamp": format_time(now)}
        | own
        | {"namespace": document.namespace or namespace}
    }


def _apply_spec(body: Object, live: Object) -> Object:
    """Apply the spec as the API server would: a changed spec increments the generation."""
    metadata = live["metadata"]
    if not _same_spec(body.get("spec"), live.get("spec")):
        metadata = metadata | {"generation": metadata["generation"] + 1}
    return live | {"spec": body.get("spec"), "metadata": metadata}


def _normalize_numbers(value: Any) -> Any:
    """The value as the API server returns it, with whole numbers without `.0`: digests of the spec
    would differ otherwise."""
    match value:
        case dict():
            return {key: _normalize_numbers(each) for key, each in value.items()}
        case list():
            return [_normalize_numbers(each) for each in value]
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
    """The uid of the InferenceDeployment that controls a child; empty if none does."""
    for owner in child["metadata"].get("ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") == INFERENCE_DEPLOYMENT:
            return str(owner.get("uid", ""))
    return ""
