"""Renders the Job that downloads a checkpoint to a claim, once for all replicas.

Its pod is made of what the pods of the placement have: their image, which has the client of the
Hub and which the nodes need anyway, their nodes, so that a volume of a zone is created where the
replicas run, their variables for proxies and the Hub, and the certificates that they trust. It
requests no GPU and mounts nothing else but the claim.
"""

from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.inference import DEFAULT_ENGINE, InferenceDeploymentSpec
from tonnage.api.names import LABEL_KUEUE_QUEUE, LABEL_MANAGED_BY, MANAGED_BY
from tonnage.api.text import digest
from tonnage.catalog.model import Vendor
from tonnage.checkpoint.hub.pod_program import NEEDS_PERSON
from tonnage.engines.defaults import load_defaults
from tonnage.engines.image import choose_image
from tonnage.engines.inputs import Owner
from tonnage.engines.lifetime import download_seconds
from tonnage.engines.registry import engine_for
from tonnage.engines.replica import Replica
from tonnage.kube.kinds import JOBS
from tonnage.workloads.metadata import owner_labels, owner_reference
from tonnage.workloads.names import weights_job_name
from tonnage.workloads.pod.certificates import Certificates, certificates_of
from tonnage.workloads.pod.patches import all_patches
from tonnage.workloads.pod.security import (
    render_container_security_context,
    render_pod_security_context,
)
from tonnage.workloads.pod.template import render_pod_template
from tonnage.workloads.pod.volumes import MODEL_VOLUME
from tonnage.workloads.pod.weights import SCRATCH_PATH, program, render_download_environment

Json = dict[str, Any]

CONTAINER: Final = "download"
"""Name of the container that downloads."""

POD_NAME: Final = "tonnage-weights"
"""Label app.kubernetes.io/name of its pods. They have no label of the InferenceDeployment: no
Service and no budget selects them."""

_SCRATCH: Final = "scratch"

_KUEUE: Final = LABEL_KUEUE_QUEUE.rpartition("/")[0]
"""The group of all labels and annotations that Kueue reads of pods."""

_OWN_PATHS: Final = (load_defaults().model_volume_path, SCRATCH_PATH)

_TAKEN_FIELDS: Final = (
    *("imagePullSecrets", "serviceAccountName", "priorityClassName", "tolerations", "nodeSelector"),
    *("dnsConfig", "dnsPolicy", "hostAliases"),
)
"""Fields of the pods of the placement that this pod has, too, besides the affinity to nodes."""


def wanted_weights_job(
    owner: Owner, spec: InferenceDeploymentSpec, commit: str | None
) -> str | None:
    """The name of the Job for the checkpoint at this commit; None where the spec has no cache. The
    name follows from what is downloaded and where to, so that a finished Job is found again."""
    hub, claim = spec.model.source.hugging_face, spec.model.cache_claim
    if hub is None or claim is None or commit is None:
        return None
    return weights_job_name(owner.name, digest([hub.repo, commit, claim]))


def render_weights_job(replica: Replica) -> Json:
    """The Job for the checkpoint of the replica, whose spec has a cache."""
    spec, volume_claim = replica.spec, replica.spec.model.cache_claim
    name = wanted_weights_job(replica.owner, spec, replica.checkpoint.revision)
    assert name is not None, "a spec without a cache has no Job"
    volume = {"name": MODEL_VOLUME, "persistentVolumeClaim": {"claimName": volume_claim}}
    container = {
        "command": ["python3", "-c", program("download")],
        "env": render_download_environment(replica),
        "resources": {"requests": dict(load_defaults().weights_download.requests)},
    }
    return render_download_job(replica, name, container, volume)


def render_download_job(replica: Replica, name: str, container: Json, volume: Json) -> Json:
    """A Job whose `container`, with the command, the variables and the resources that are given,
    downloads to a `volume`."""
    download, owner = load_defaults().weights_download, replica.owner
    return {
        "apiVersion": f"{JOBS.group}/{JOBS.version}",
        "kind": JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": owner_labels(owner),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "backoffLimit": download.attempts_after_first,
            "activeDeadlineSeconds": download_seconds(replica.weights_bytes),
            "ttlSecondsAfterFinished": download.ttl_seconds,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": CONTAINER,
                            "operator": "In",
                            "values": [NEEDS_PERSON],
                        },
                    },
                ]
            },
            "template": {
                "metadata": _pod_metadata(replica),
                "spec": _pod_spec(replica, container, volume),
            },
        },
    }


def _pod_metadata(replica: Replica) -> Json:
    """The user's labels and annotations, as policies of a cluster may require some. Those of Kueue
    are for pods with GPUs: it would hold this pod until the quota admits it."""
    labels: Json = {}
    annotations: Json = {}
    for patch in all_patches(replica.spec, replica.option):
        labels.update(_without_kueue(patch.metadata.labels))
        annotations.update(_without_kueue(patch.metadata.annotations))
    own = {"app.kubernetes.io/name": POD_NAME, LABEL_MANAGED_BY: MANAGED_BY}
    return {"labels": {**labels, **own}, **({"annotations": annotations} if annotations else {})}


def _without_kueue(values: Mapping[str, str]) -> Json:
    return {key: value for key, value in values.items() if key.rpartition("/")[0] != _KUEUE}


def _pod_spec(replica: Replica, container: Json, volume: Json) -> Json:
    pod, name = render_pod_template(replica)["spec"], replica.spec.engine.name
    served = next(container for container in pod["containers"] if container["name"] == name)
    certificates = certificates_of(pod, served, _OWN_PATHS)
    affinity = {"nodeAffinity": pod["affinity"]["nodeAffinity"]}
    return {
        **{field: pod[field] for field in _TAKEN_FIELDS if field in pod},
        "affinity": affinity,
        "containers": [_container(replica, container, certificates)],
        "volumes": [volume, {"name": _SCRATCH, "emptyDir": {}}, *certificates.volumes],
        # That of the default engine on NVIDIA's GPUs, which meets the standard "restricted"; the
        # group of all other pods can read it.
        "securityContext": render_pod_security_context(Vendor.NVIDIA, DEFAULT_ENGINE),
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }


def _container(replica: Replica, container: Json, certificates: Certificates) -> Json:
    return {
        "name": CONTAINER,
        "image": choose_image(engine_for(replica.spec), replica).name,
        "command": container["command"],
        "env": [*container["env"], *certificates.variables],
        "resources": container["resources"],
        "volumeMounts": [
            {"name": MODEL_VOLUME, "mountPath": load_defaults().model_volume_path},
            {"name": _SCRATCH, "mountPath": SCRATCH_PATH},
            *certificates.mounts,
        ],
        "securityContext": {
            **render_container_security_context(),
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
