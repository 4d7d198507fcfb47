"""The pod template: all that a pod is, and nothing that may change without a restart."""

from typing import Any

from tonnage.api.names import ANNOTATION_RESTARTED_AT, VLLM_CONTAINER
from tonnage.api.pod import TemplateSpec
from tonnage.render.arguments import arguments
from tonnage.render.defaults import defaults
from tonnage.render.environment import environment
from tonnage.render.image import choose_image
from tonnage.render.lifetime import lifecycle, probes, termination_grace_seconds
from tonnage.render.metadata import placement_labels, queue_labels
from tonnage.render.replica import Replica
from tonnage.render.resources import resources
from tonnage.render.scheduling import affinity, tolerations
from tonnage.render.security import container_security_context, pod_security_context
from tonnage.render.volumes import volume_mounts, volumes


def pod_template(replica: Replica) -> dict[str, Any]:
    """The template of the replica's pods, the user's labels and annotations among it."""
    given = replica.spec.template.metadata
    metadata: dict[str, Any] = {
        "labels": {
            **given.labels,
            **queue_labels(replica.owner, given),
            **placement_labels(replica.owner, replica.option),
        }
    }
    annotations = dict(given.annotations)
    if replica.spec.rollout.restarted_at is not None:
        annotations[ANNOTATION_RESTARTED_AT] = replica.spec.rollout.restarted_at
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": _pod_spec(replica)}


def _pod_spec(replica: Replica) -> dict[str, Any]:
    given, pool = replica.spec.template.spec, replica.option.pool
    return {
        **_passed_through(given),
        "affinity": affinity(pool, replica.catalog),
        "tolerations": tolerations(pool, given.tolerations),
        "containers": [_container(replica)],
        "volumes": volumes(replica.spec, replica.vendor, replica.gpus),
        "securityContext": pod_security_context(replica.vendor),
        "terminationGracePeriodSeconds": termination_grace_seconds(replica.vendor),
        "restartPolicy": "Always",
        # A Service named vllm would put VLLM_PORT=tcp://... into every pod of the namespace, and
        # vLLM refuses to start with it.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }


def _container(replica: Replica) -> dict[str, Any]:
    image = choose_image(replica)
    return {
        "name": VLLM_CONTAINER,
        "image": image.name,
        **({"command": list(image.command)} if image.command else {}),
        "args": arguments(replica),
        "env": environment(replica),
        "ports": [{"name": "http", "containerPort": defaults().server.port, "protocol": "TCP"}],
        "resources": resources(replica),
        "volumeMounts": volume_mounts(replica.spec),
        "securityContext": container_security_context(),
        "lifecycle": lifecycle(),
        **probes(replica.model_gib),
        # vLLM writes no termination message of its own: the end of its log is the next best.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _passed_through(given: TemplateSpec) -> dict[str, Any]:
    fields = {
        "serviceAccountName": given.service_account_name,
        "priorityClassName": given.priority_class_name,
        "runtimeClassName": given.runtime_class_name,
        "imagePullSecrets": [secret.to_dict() for secret in given.image_pull_secrets],
    }
    return {name: value for name, value in fields.items() if value}
