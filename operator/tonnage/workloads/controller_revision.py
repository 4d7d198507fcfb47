"""Read the pod templates that a ControllerRevision of a LeaderWorkerSet keeps.

The controller writes one for each template, and deletes the others when all groups are ready with
the newest one. Source: kubernetes-sigs/lws v0.9.0, pkg/utils/revision/revision_utils.go, whose data
is a strategic merge patch; v0.7.0 writes the same.
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tonnage.kube.protocol import Object

_TEMPLATES: Final = ("leaderTemplate", "workerTemplate")
_OWN_METADATA: Final = ("labels", "annotations")
_DIRECTIVE: Final = "$patch"
"""The key of a strategic merge patch that says what to do with an object."""


class _Read(BaseModel):
    """A part of the data. The API server checks none of it, so any value is possible."""

    model_config = ConfigDict(strict=True, frozen=True)


class _Container(_Read):
    name: str
    image: str
    command: list[str] | None = None
    args: list[str] | None = None


class _Claim(_Read):
    claimName: str  # noqa: N815 - the name of the field in Kubernetes


class _Volume(_Read):
    name: str
    persistentVolumeClaim: _Claim | None = None  # noqa: N815 - as above


class _PodSpec(_Read):
    containers: Annotated[list[_Container], Field(min_length=1)]
    volumes: list[_Volume] | None = None


class _Metadata(_Read):
    labels: dict[str, str]
    annotations: dict[str, str] | None = None


class _PodTemplate(_Read):
    metadata: _Metadata
    spec: _PodSpec


class _LeaderWorkerTemplate(_Read):
    size: int
    leaderTemplate: _PodTemplate  # noqa: N815 - as above
    workerTemplate: _PodTemplate  # noqa: N815 - as above


def read_templates(revision: Object) -> Object | None:
    """Return `spec.leaderWorkerTemplate` of that revision; None where the data has another form."""
    try:
        templates = revision["data"]["spec"]["leaderWorkerTemplate"]
        _LeaderWorkerTemplate.model_validate(templates)
    except (KeyError, TypeError, ValidationError):
        return None
    return {
        **{name: value for name, value in templates.items() if name != _DIRECTIVE},
        **{name: _own(templates[name]) for name in _TEMPLATES},
    }


def _own(template: Object) -> Object:
    """The template without fields of its metadata that the encoder writes, as a time of null."""
    kept = {name: template["metadata"].get(name) for name in _OWN_METADATA}
    metadata = {name: value for name, value in kept.items() if value}
    return {**template, "metadata": metadata}
