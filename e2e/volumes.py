"""Volumes that models mount, bound by the real volume binder."""

from __future__ import annotations

from typing import Final

from e2e.harness.admin import Admin
from e2e.harness.rest import Json

ZONE: Final = "topology.kubernetes.io/zone"
CLAIM: Final = "weights"
MOUNTED: Final[Json] = {
    "spec": {"volumes": [{"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}}]}
}
"""A podTemplate with the volume of the claim."""


def bind_volume(
    admin: Admin,
    namespace: str,
    name: str,
    zone: str | None = None,
    *,
    claim: str = CLAIM,
    capacity: str = "1Gi",
) -> None:
    """Bind a claim of the namespace to a new volume, of a zone or for every node."""
    size, modes = {"storage": capacity}, ["ReadWriteMany"]
    affinity: Json = {}
    if zone is not None:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"required": required}}
    admin.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "hostPath": {"path": "/data"},
                "claimRef": {"namespace": namespace, "name": claim},
                "persistentVolumeReclaimPolicy": "Retain",
                **affinity,
            },
        }
    )
    admin.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace},
            "spec": {
                "accessModes": modes,
                "resources": {"requests": size},
                "storageClassName": "",
                "volumeName": name,
            },
        }
    )
    admin.wait_for(
        "persistentvolumeclaims", claim, lambda body: body["status"].get("phase") == "Bound"
    )
