"""What a pod template was rendered from, as annotations of its Deployment.

A later operator would often render another template from the same spec: it has a newer default
release, other images, other probes. So the operator records what it rendered, and keeps it while
nothing changes that a user or a platform team sets.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from tonnage.api.names import (
    ANNOTATION_ADMITTED,
    ANNOTATION_POD_TEMPLATE,
    ANNOTATION_RENDERED_FROM,
    ANNOTATION_TEMPLATE,
)
from tonnage.api.packed import pack_json, unpack_json
from tonnage.api.text import canonical_json, digest, digest_json, read_json_object
from tonnage.kube.protocol import Object
from tonnage.workloads.registry import workload_kind_of

_CACHED_RECORDS: Final = 1024
"""Records kept parsed, some KiB each."""

_ANNOTATIONS: Final = (ANNOTATION_RENDERED_FROM, ANNOTATION_POD_TEMPLATE)

_MAX_COUNT: Final = 2**31
_RELEASE: Final = re.compile(r"[0-9]+(\.[0-9]+){2}[a-z0-9.]{0,16}")
_GENERATION: Final = re.compile(r"[0-9]{1,18}")
_DIGEST: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """What a template was rendered from.

    `spec`, `given` and `chosen` are digests: of the rendered part of the spec, of what else users
    and platform teams set (labels of the object, fields of the pool), and of what the operator
    chose (parallelism, adjustments, the name of the device). `release` is that of the engine, None
    where the spec names it. `deadline_seconds` is the operator's default for the progress deadline
    of a rollout, None where the spec sets it. `pool_template` is the digest of the podTemplate of
    the pool, None where it has none; a change of it alone replaces no pod.
    """

    spec: str
    given: str
    chosen: str
    release: str | None
    deadline_seconds: int | None = None
    pool_template: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedDemand:
    """The load that a placement was made for: the digest of the demand in the spec, the tokens that
    each replica has to hold at once, and the number of replicas that followed."""

    digest: str
    tokens: int
    replicas: int


@dataclass(frozen=True, slots=True)
class TemplateRecord:
    """A pod template as rendered, what it was rendered from, and the demand at that time.

    `name` is the digest that names the template on its Deployment. `recorded_at` is the generation
    of the Deployment to which the record alone was written, None where it came with the template.
    """

    source: TemplateSource
    demand: RecordedDemand
    template: Object
    name: str
    recorded_at: int | None = None

    def annotations(self) -> dict[str, str]:
        """The record as annotations; none for a template that is too long for one."""
        template = canonical_json(self.template)
        packed = pack_json(template)
        if packed is None:
            return {}
        source, demand = self.source, self.demand
        values = {
            "release": source.release,
            "spec": source.spec,
            "given": source.given,
            "chosen": source.chosen,
            "progressDeadlineSeconds": source.deadline_seconds,
            "poolTemplate": source.pool_template,
            "demand": demand.digest,
            "tokens": demand.tokens,
            "replicas": demand.replicas,
            "template": digest_json(template),
            "recordedAt": self.recorded_at,
        }
        stated = {key: value for key, value in values.items() if value is not None}
        return {
            ANNOTATION_RENDERED_FROM: json.dumps(stated, separators=(",", ":")),
            ANNOTATION_POD_TEMPLATE: packed,
        }


def read_record(annotations: Mapping[str, str]) -> TemplateRecord | None:
    """Read the record of a Deployment's template. One that is missing, unreadable or incomplete
    counts as absent: any editor of a Deployment can write any text."""
    source = annotations.get(ANNOTATION_RENDERED_FROM)
    packed = annotations.get(ANNOTATION_POD_TEMPLATE)
    if source is None or packed is None:
        return None
    return _parse_record(source, packed, annotations.get(ANNOTATION_TEMPLATE, ""))


@lru_cache(_CACHED_RECORDS)
def _parse_record(source: str, packed: str, name: str) -> TemplateRecord | None:
    """Parse a record once for all reconciles of its object, each of which reads it several
    times."""
    text, values = unpack_json(packed), read_json_object(source)
    if text is None or values is None or digest_json(text) != values.get("template"):
        return None
    template = read_json_object(text)
    if template is None or not isinstance(template.get("spec"), dict):
        return None
    return TemplateRecord(
        TemplateSource(
            spec=_read_digest(values, "spec"),
            given=_read_digest(values, "given"),
            chosen=_read_digest(values, "chosen"),
            release=_read_release(values),
            deadline_seconds=_count(values, "progressDeadlineSeconds") or None,
            pool_template=_read_digest(values, "poolTemplate") or None,
        ),
        RecordedDemand(
            digest=_read_digest(values, "demand"),
            tokens=_count(values, "tokens"),
            replicas=_count(values, "replicas"),
        ),
        template,
        name=name,
        recorded_at=_count(values, "recordedAt") or None,
    )


def read_recorded_at(annotations: Mapping[str, str]) -> int | None:
    """The generation of a Deployment that got its record later than its template; the API server
    counts that write as a new generation. None where its record says nothing of it."""
    values = read_json_object(annotations.get(ANNOTATION_RENDERED_FROM, ""))
    return (_count(values, "recordedAt") or None) if values else None


def recorded_annotations(deployment: Object) -> dict[str, str]:
    """The record of a Deployment as it was written."""
    annotations = deployment["metadata"].get("annotations") or {}
    return {key: annotations[key] for key in _ANNOTATIONS if key in annotations}


def template_of(body: Object) -> Object:
    """The pod template of a workload or of one of its ReplicaSets, as it was rendered."""
    return workload_kind_of(body).template(body)


def admitted_annotation(admitted: Object) -> dict[str, str]:
    """The annotation for a Deployment whose template admission has changed to the present one."""
    generation = admitted["metadata"].get("generation", 0)
    return {ANNOTATION_ADMITTED: f"{digest(template_of(admitted))} {generation}"}


def is_as_admitted(body: Object) -> bool:
    """Whether the template of a Deployment, or of one of its ReplicaSets, is what admission made of
    the rendered one, and no other client has changed it since."""
    admitted = (body["metadata"].get("annotations") or {}).get(ANNOTATION_ADMITTED)
    return admitted is not None and admitted.split(" ")[0] == digest(template_of(body))


def read_admitted_at(annotations: Mapping[str, str]) -> int | None:
    """The generation of a Deployment to which the annotation about its admission was added."""
    generation = annotations.get(ANNOTATION_ADMITTED, "").rpartition(" ")[2]
    return int(generation) if _GENERATION.fullmatch(generation) else None


def as_rendered(body: Object) -> Object:
    """A Deployment, or one of its ReplicaSets, with its template as the operator rendered it."""
    if not is_as_admitted(body):
        return body
    record = read_record(body["metadata"]["annotations"])
    return body if record is None else workload_kind_of(body).with_template(body, record.template)


def _read_digest(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) and _DIGEST.fullmatch(value) else ""


def _read_release(values: Mapping[str, Any]) -> str | None:
    value = values.get("release")
    return value if isinstance(value, str) and _RELEASE.fullmatch(value) else None


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if type(value) is int and 0 < value < _MAX_COUNT else 0
