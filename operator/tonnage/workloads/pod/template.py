"""Renders the pod template, which has nothing that may change without a restart, and checks it."""

from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_RESTARTED_AT, VLLM_CONTAINER
from tonnage.api.pod import TemplateSpec
from tonnage.engines.defaults import load_defaults
from tonnage.engines.replica import Replica
from tonnage.engines.vllm.arguments import check_arguments, render_arguments
from tonnage.engines.vllm.environment import check_environment, render_environment
from tonnage.engines.vllm.image import Image, choose_image
from tonnage.engines.vllm.lifetime import render_lifecycle, render_probes, termination_grace_seconds
from tonnage.workloads.metadata import check_metadata, placement_labels, queue_labels
from tonnage.workloads.pod.resources import check_resources, render_resources
from tonnage.workloads.pod.scheduling import check_tolerations, render_affinity, tolerations
from tonnage.workloads.pod.security import (
    render_container_security_context,
    render_pod_security_context,
)
from tonnage.workloads.pod.volumes import check_volumes, render_volume_mounts, render_volumes


def render_pod_template(replica: Replica) -> dict[str, Any]:
    """The template of the replica's pods, with the user's labels and annotations."""
    user_metadata = replica.spec.template.metadata
    metadata: dict[str, Any] = {
        "labels": {
            **user_metadata.labels,
            **queue_labels(replica.owner, user_metadata),
            **placement_labels(replica.owner, replica.option),
        }
    }
    annotations = dict(user_metadata.annotations)
    if replica.spec.rollout.restarted_at is not None:
        annotations[ANNOTATION_RESTARTED_AT] = replica.spec.rollout.restarted_at
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": _pod_spec(replica)}


def _pod_spec(replica: Replica) -> dict[str, Any]:
    user_spec, pool = replica.spec.template.spec, replica.option.pool
    image = choose_image(replica)
    return {
        **_copied_fields(user_spec),
        "affinity": render_affinity(pool, replica.catalog, image.oldest_driver),
        "tolerations": tolerations(pool, user_spec.tolerations),
        "containers": [_container(replica, image)],
        "volumes": render_volumes(replica),
        "securityContext": render_pod_security_context(replica.vendor),
        "terminationGracePeriodSeconds": termination_grace_seconds(
            replica.vendor, replica.spec.rollout
        ),
        "restartPolicy": "Always",
        # A Service named vllm would set VLLM_PORT=tcp://... in every pod of the namespace, and vLLM
        # does not start with it.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }


def _container(replica: Replica, image: Image) -> dict[str, Any]:
    return {
        "name": VLLM_CONTAINER,
        "image": image.name,
        **({"command": list(image.command)} if image.command else {}),
        "args": render_arguments(replica),
        "env": render_environment(replica),
        "ports": [
            {"name": "http", "containerPort": load_defaults().server.port, "protocol": "TCP"}
        ],
        "resources": render_resources(replica),
        "volumeMounts": render_volume_mounts(replica.spec),
        "securityContext": render_container_security_context(),
        "lifecycle": render_lifecycle(replica.vllm_version, replica.spec.rollout),
        **render_probes(replica.model_gib),
        # vLLM writes no termination message of its own.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _copied_fields(user_spec: TemplateSpec) -> dict[str, Any]:
    fields = {
        "serviceAccountName": user_spec.service_account_name,
        "priorityClassName": user_spec.priority_class_name,
        "runtimeClassName": user_spec.runtime_class_name,
        "imagePullSecrets": [secret.to_dict() for secret in user_spec.image_pull_secrets],
    }
    return {name: value for name, value in fields.items() if value}


def check_template(spec: InferenceDeploymentSpec) -> None:
    """Refuse settings that clash with those that Tonnage renders.

    Raises ForbiddenMetadataError, LabelSyntaxError, ReservedArgumentError, ReservedVariableError,
    ResourceError or VolumeError, each a RenderError that names the field and says what to do.
    """
    check_metadata(spec.template.metadata)
    check_arguments(spec)
    check_environment(spec)
    check_resources(spec.template.spec.resources)
    check_volumes(spec.template.spec)
    check_tolerations(spec.template.spec.tolerations)
