"""Labels, annotations and owner references of child objects."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import (
    ADAPTER_GROUP,
    ANNOTATION_PLACED_FOR,
    ANNOTATION_PLACEMENT,
    API_VERSION,
    APPLICATION,
    GROUP,
    INFERENCE_DEPLOYMENT,
    LABEL_CONTEXT,
    LABEL_KUEUE_QUEUE,
    LABEL_LORA_UPDATES,
    LABEL_MANAGED_BY,
    LABEL_OWNER,
    LABEL_PLACEMENT,
    LABEL_SHARD,
    MANAGED_BY,
)
from tonnage.api.pod import TemplateMetadata
from tonnage.engines.errors import ForbiddenMetadataError, LabelSyntaxError
from tonnage.engines.inputs import Owner
from tonnage.engines.replica import Replica
from tonnage.fit.model import Parallelism
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.placement.model import Option
from tonnage.workloads.label_syntax import KEY_SYNTAX, NAME_SYNTAX, is_label_key, is_label_value

_LABEL_NAME: Final = "app.kubernetes.io/name"

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
"""Key of a placement: bytes of the memory correction that the choice used."""

DATA_PARALLEL_SIZE: Final = "dataParallelSize"
NODES_PER_REPLICA: Final = "nodesPerReplica"
"""Key of a placement: nodes of one replica, where it has several."""

SECONDARY: Final = "beside"
"""Key of a placement: true where it takes the replicas for which another one lacks capacity."""

_GITOPS: Final = "a GitOps or command-line tool tracks its own objects by it"
_CONFINEMENT: Final = "it would loosen the confinement of the container"
_FORBIDDEN_GROUPS: Final = {
    # Kubernetes 1.35 copies it into the security context (pkg/registry/core/pod/strategy.go).
    "container.apparmor.security.beta.kubernetes.io": _CONFINEMENT,
    "argocd.argoproj.io": _GITOPS,
    "toolkit.fluxcd.io": _GITOPS,
    "kubectl.kubernetes.io": _GITOPS,
    # The controller keeps those that a template has: all groups would have one number.
    "leaderworkerset.sigs.k8s.io": "the LeaderWorkerSet controller sets it",
}
"""Groups of keys, with all their subgroups, that users must not set on pods."""

_OWN: Final = "the operator finds its objects by it"

_FORBIDDEN_KEYS: Final = {
    "app.kubernetes.io/instance": _GITOPS,
    _LABEL_NAME: "the operator sets it",
    LABEL_MANAGED_BY: "the operator sets it",
    "pod-template-hash": "the Deployment controller sets it",
}


def check_metadata(metadata: TemplateMetadata, path: str) -> None:
    """Refuse keys that only the operator may set, and what Kubernetes does not take; `path` is that
    of the metadata. Raises ForbiddenMetadataError or LabelSyntaxError."""
    for field, keys in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        for key in keys:
            cause = _why_forbidden(key)
            if cause:
                raise ForbiddenMetadataError(f"{path}.{field}", key, cause)
            if not is_label_key(key.lower() if field == "annotations" else key):
                raise LabelSyntaxError(f"{path}.{field}", key, KEY_SYNTAX)
    for key, value in metadata.labels.items():
        if not is_label_value(value):
            raise LabelSyntaxError(f"{path}.labels[{key}]", value, NAME_SYNTAX)


def owner_reference(owner: Owner) -> dict[str, Any]:
    """Makes the garbage collector remove the child with its owner, even with the operator down."""
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_DEPLOYMENT,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }


def owner_labels(owner: Owner) -> dict[str, str]:
    """Labels of every child; context and shard only where the owner has them, so that they never
    change pods of other objects."""
    return {
        _LABEL_NAME: APPLICATION,
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_OWNER: owner.name,
        **({LABEL_CONTEXT: owner.context.value} if owner.context else {}),
        **owner.shard.own_labels,
    }


def placement_labels(owner: Owner, placement: str) -> dict[str, str]:
    """Labels of the Deployment and the pods of one placement."""
    return {**owner_labels(owner), LABEL_PLACEMENT: placement}


def adapter_labels(spec: InferenceDeploymentSpec) -> dict[str, str]:
    """A label of the pods for each adapter that they serve, for gateways that route by adapter; for
    pods whose adapters change while they run, one that says this."""
    if spec.lora is not None and spec.lora.is_live:
        return {LABEL_LORA_UPDATES: spec.lora.updates.value}
    adapters = spec.lora.adapters if spec.lora else ()
    return {f"{ADAPTER_GROUP}/{adapter.name}": "true" for adapter in adapters}


def adapters_of_pod(labels: Mapping[str, str]) -> frozenset[str]:
    """The names of the adapters that a pod with these labels serves."""
    prefix = f"{ADAPTER_GROUP}/"
    return frozenset(key.removeprefix(prefix) for key in labels if key.startswith(prefix))


def takes_adapters(labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels loads adapters while it runs."""
    return LABEL_LORA_UPDATES in labels


def queue_labels(owner: Owner, template: TemplateMetadata) -> dict[str, str]:
    """Kueue's queue, from the template or else from the object itself.

    Kueue reads the label of the Deployment, and older releases that of the pods.
    """
    queue = template.labels.get(LABEL_KUEUE_QUEUE, owner.queue)
    return {} if queue is None else {LABEL_KUEUE_QUEUE: queue}


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a Deployment that the operator sets."""
    return {key: value for key, value in labels.items() if key in _OWN_LABELS}


def pod_selector(owner: Owner, option: Option) -> dict[str, str]:
    """The labels by which a Deployment selects its pods; immutable, hence as few as possible."""
    return {LABEL_OWNER: owner.name, LABEL_PLACEMENT: option.placement_name}


def placement_annotations(option: Option, placement_digest: str) -> dict[str, str]:
    """What the next reconcile reads back: the placement, and a digest of its inputs.

    Only the Deployment has them; in the pod template they would roll the pods.
    """
    placement = placement_annotation(
        option.pool.name,
        option.accelerator.id,
        option.parallelism,
        option.adjustments,
        option.fit.account.correction_bytes,
    )
    return {ANNOTATION_PLACED_FOR: placement_digest, ANNOTATION_PLACEMENT: placement}


def placement_annotation(
    pool: str,
    accelerator: str,
    parallelism: Parallelism,
    adjustments: EngineAdjustments,
    correction_bytes: int = 0,
) -> str:
    """The placement as JSON."""
    placement: dict[str, str | float] = {
        "pool": pool,
        "accelerator": accelerator,
        "tensorParallelSize": parallelism.tensor,
        "pipelineParallelSize": parallelism.pipeline,
        **optional_entries(parallelism),
        **{setting.value: value for setting, value in adjustments.values.items()},
    }
    if correction_bytes:
        placement[CORRECTION_BYTES] = correction_bytes
    return json.dumps(placement, separators=(",", ":"))


def workload_metadata(name: str, replica: Replica, placement_digest: str) -> dict[str, Any]:
    """The metadata of the workload of one placement."""
    owner, option = replica.owner, replica.option
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": {
            **queue_labels(owner, replica.spec.pod_metadata),
            **placement_labels(owner, option.placement_name),
        },
        "annotations": placement_annotations(option, placement_digest),
        "ownerReferences": [owner_reference(owner)],
    }


def optional_entries(parallelism: Parallelism) -> dict[str, int]:
    """The data-parallel size and the nodes of a replica for annotations and digests; nothing for 1,
    which is how older operators wrote them."""
    sizes = {DATA_PARALLEL_SIZE: parallelism.data, NODES_PER_REPLICA: parallelism.nodes}
    return {name: size for name, size in sizes.items() if size > 1}


def _why_forbidden(key: str) -> str | None:
    group = key.rpartition("/")[0]
    if group in (GROUP, ADAPTER_GROUP):
        return _OWN
    for forbidden, cause in _FORBIDDEN_GROUPS.items():
        if group == forbidden or group.endswith(f".{forbidden}"):
            return cause
    return _FORBIDDEN_KEYS.get(key)
