"""Render the Job that reads the facts of a model on a volume, and its permissions."""

import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from tonnage.api.model import PersistentVolumeClaimSource
from tonnage.api.names import MAX_NAME_LENGTH

DEFAULT_IMAGE: Final = "python:3.13-slim"
"""Any image with Python 3.9 or newer as `python3` works."""

_MOUNT: Final = "/volume"
_SERVICE_ACCOUNT_DIR: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_UNPRIVILEGED_UID: Final = 65534

_ACTIVE_DEADLINE_SECONDS: Final = 600
_TTL_SECONDS: Final = 3600


def render_inspection(
    claim: PersistentVolumeClaimSource, namespace: str, config_map: str, image: str = DEFAULT_IMAGE
) -> list[dict[str, Any]]:
    """Return the manifests that write the facts of the claim's model into a ConfigMap.

    The manifest creates an empty ConfigMap, so that the Job needs only the permission to patch this
    object. The Job mounts the volume read-only.
    """
    name = _job_name(config_map)
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/name": "tonnage-inspect"},
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**metadata, "name": config_map}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata,
            "automountServiceAccountToken": False,
        },
        _render_role(metadata, config_map),
        _render_role_binding(metadata),
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                "backoffLimit": 1,
                "activeDeadlineSeconds": _ACTIVE_DEADLINE_SECONDS,
                "ttlSecondsAfterFinished": _TTL_SECONDS,
                "template": {
                    "metadata": {"labels": metadata["labels"]},
                    "spec": _render_pod_spec(claim, name, config_map, image),
                },
            },
        },
    ]


def _job_name(config_map: str) -> str:
    """Return a deterministic DNS label that is unique for each ConfigMap."""
    name = f"tonnage-inspect-{config_map.replace('.', '-')}"
    if len(name) <= MAX_NAME_LENGTH and "." not in config_map:
        return name
    digest = hashlib.sha256(config_map.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - 9].rstrip('-')}-{digest}"


def _render_role(metadata: Mapping[str, Any], config_map: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [config_map],
                "verbs": ["patch"],
            }
        ],
    }


def _render_role_binding(metadata: Mapping[str, Any]) -> dict[str, Any]:
    name, namespace = metadata["name"], metadata["namespace"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def _render_pod_spec(
    claim: PersistentVolumeClaimSource, service_account: str, config_map: str, image: str
) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "serviceAccountName": service_account,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _UNPRIVILEGED_UID,
            "runAsGroup": _UNPRIVILEGED_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_render_container(claim, config_map, image)],
        "volumes": [
            {
                "name": "model",
                "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True},
            }
        ],
    }


def _render_container(
    claim: PersistentVolumeClaimSource, config_map: str, image: str
) -> dict[str, Any]:
    environment = {
        "MODEL_DIR": f"{_MOUNT}/{claim.path}".rstrip("/"),
        "CONFIG_MAP": config_map,
        "API_SERVER": "https://kubernetes.default.svc",
        "SERVICE_ACCOUNT_DIR": _SERVICE_ACCOUNT_DIR,
    }
    namespace = {
        "name": "NAMESPACE",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }
    return {
        "name": "read-volume",
        "image": image,
        "command": ["python3", "-c", read_volume_script()],
        "env": [{"name": key, "value": value} for key, value in environment.items()] + [namespace],
        "volumeMounts": [{"name": "model", "mountPath": _MOUNT, "readOnly": True}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def read_volume_script() -> str:
    """Return the source of the program that the Job runs."""
    return resources.files("tonnage.checkpoint.volume").joinpath("read.py").read_text("utf-8")
