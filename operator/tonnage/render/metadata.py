"""Labels, annotations and owner references of the children."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.names import (
    ANNOTATION_PLACED_FOR,
    ANNOTATION_PLACEMENT,
    API_VERSION,
    GROUP,
    INFERENCE_DEPLOYMENT,
    LABEL_CONTEXT,
    LABEL_KUEUE_QUEUE,
    LABEL_MANAGED_BY,
    LABEL_OWNER,
    LABEL_PLACEMENT,
    LABEL_SHARD,
    MANAGED_BY,
)
from tonnage.api.pod import TemplateMetadata
from tonnage.placement.model import Option
from tonnage.render.errors import ForbiddenMetadataError
from tonnage.render.model import Owner
from tonnage.render.names import placement_name

_LABEL_NAME: Final = "app.kubernetes.io/name"
_APPLICATION: Final = "vllm"

_OWN_LABELS: Final = (
    _LABEL_NAME,
    LABEL_MANAGED_BY,
    LABEL_OWNER,
    LABEL_PLACEMENT,
    LABEL_CONTEXT,
    LABEL_KUEUE_QUEUE,
    LABEL_SHARD,
)

CORRECTION_BYTES: Final = "correctionBytes"
"""Within a placement: what had been learnt of its memory when it was chosen."""

BESIDE: Final = "beside"
"""Within a placement: true where it takes what another one has no room for."""

_GITOPS: Final = "a GitOps or command-line tool tracks its own objects by it"
_CONFINEMENT: Final = "it would loosen the confinement of the container"
_FORBIDDEN_GROUPS: Final = {
    # Kubernetes 1.35 copies it into the security context (pkg/registry/core/pod/strategy.go).
    "container.apparmor.security.beta.kubernetes.io": _CONFINEMENT,
    "argocd.argoproj.io": _GITOPS,
    "toolkit.fluxcd.io": _GITOPS,
    "kubectl.kubernetes.io": _GITOPS,
}
"""Groups of keys, with all groups below them, that users may not write on pods."""

_OWN: Final = "the operator finds its objects by it"

_FORBIDDEN_KEYS: Final = {
    "app.kubernetes.io/instance": _GITOPS,
    _LABEL_NAME: "the operator sets it",
    LABEL_MANAGED_BY: "the operator sets it",
    "pod-template-hash": "the Deployment controller sets it",
}


def check_metadata(metadata: TemplateMetadata) -> None:
    """Refuse keys that are not the user's. Raises ForbiddenMetadataError."""
    for field, keys in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        for key in keys:
            why = _why_forbidden(key)
            if why:
                raise ForbiddenMetadataError(f"spec.template.metadata.{field}", key, why)


def owner_reference(owner: Owner) -> dict[str, Any]:
    """Makes the garbage collector remove the child with its owner, operator up or down."""
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_DEPLOYMENT,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }


def owner_labels(owner: Owner) -> dict[str, str]:
    """Labels of every child; those of context and shard only where there is one, so that no pod of
    another object ever rolls for it."""
    return {
        _LABEL_NAME: _APPLICATION,
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_OWNER: owner.name,
        **({LABEL_CONTEXT: owner.context.value} if owner.context else {}),
        **owner.shard.own_labels,
    }


def placement_labels(owner: Owner, option: Option) -> dict[str, str]:
    """Labels of the Deployment and the pods of one placement."""
    return {**owner_labels(owner), LABEL_PLACEMENT: placement_name(option)}


def queue_labels(owner: Owner, given: TemplateMetadata) -> dict[str, str]:
    """Kueue's queue, from the template or else from the object itself.

    Kueue reads it on the Deployment, and older releases of it on the pods.
    """
    queue = given.labels.get(LABEL_KUEUE_QUEUE, owner.queue)
    return {} if queue is None else {LABEL_KUEUE_QUEUE: queue}


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those labels of a Deployment that the operator gave it."""
    return {key: value for key, value in labels.items() if key in _OWN_LABELS}


def pod_selector(owner: Owner, option: Option) -> dict[str, str]:
    """The labels by which a Deployment knows its pods; immutable, hence as few as possible."""
    return {LABEL_OWNER: owner.name, LABEL_PLACEMENT: placement_name(option)}


def placement_annotations(option: Option, placed_for: str) -> dict[str, str]:
    """What the next reconcile reads back: the place, and a digest of what it was chosen for.

    They stand on the Deployment alone; in the pod template they would roll the pods.
    """
    place: dict[str, str | float] = {
        "pool": option.pool.name,
        "accelerator": option.accelerator.id,
        "tensorParallelSize": option.parallelism.tensor,
        "pipelineParallelSize": option.parallelism.pipeline,
        **{knob.value: value for knob, value in option.adjustments.values.items()},
    }
    if option.fit.account.correction_bytes:
        place[CORRECTION_BYTES] = option.fit.account.correction_bytes
    return {
        ANNOTATION_PLACED_FOR: placed_for,
        ANNOTATION_PLACEMENT: json.dumps(place, separators=(",", ":")),
    }


def _why_forbidden(key: str) -> str | None:
    group = key.rpartition("/")[0]
    if group == GROUP:
        return _OWN
    for forbidden, why in _FORBIDDEN_GROUPS.items():
        if group == forbidden or group.endswith(f".{forbidden}"):
            return why
    return _FORBIDDEN_KEYS.get(key)
