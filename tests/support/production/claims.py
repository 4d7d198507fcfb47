"""PersistentVolumeClaims, and what the scheduler says of a pod whose claim has no volume, or one
that a node cannot mount.

Source: Kubernetes pkg/scheduler/framework/plugins/volumebinding/volume_binding.go.
"""

from tests.support.api_server.fake_api import FakeApi
from tests.support.fleets.node_affinity import admits
from tonnage.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tonnage.kube.protocol import NotFoundError, Object


def volume_claim(
    name: str, *, bound: bool, namespace: str = "chat", volume: str | None = None
) -> Object:
    """A claim that has a volume, or waits for one for ever."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"volumeName": volume} if volume else {},
        "status": {"phase": "Bound" if bound else "Pending"},
    }


def volume_in_zone(name: str, claim: str, zone: str, namespace: str = "chat") -> Object:
    """A volume that is bound to the claim, and that nodes of the zone can mount."""
    expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "claimRef": {"namespace": namespace, "name": claim},
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            },
        },
    }


def has_unreachable_volume(api: FakeApi, pod: Object, node: Object) -> bool:
    """Whether the node cannot mount a volume of the pod."""
    labels = node["metadata"].get("labels") or {}
    claims = {
        (pod["metadata"]["namespace"], volume["persistentVolumeClaim"]["claimName"])
        for volume in pod["spec"].get("volumes", [])
        if "persistentVolumeClaim" in volume
    }
    for volume in api.objects(PERSISTENT_VOLUMES):
        bound_to, affinity = volume["spec"]["claimRef"], volume["spec"]["nodeAffinity"]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": affinity["required"]}
        mounted = (bound_to["namespace"], bound_to["name"]) in claims
        if mounted and not admits(labels, {"affinity": {"nodeAffinity": required}}):
            return True
    return False


def unbound_claim(api: FakeApi, pod: Object) -> str | None:
    """Why no node suits the pod, before any node is looked at."""
    for volume in pod["spec"].get("volumes", []):
        source = volume.get("persistentVolumeClaim")
        if source is None:
            continue
        name = source["claimName"]
        try:
            claim = api.object(PERSISTENT_VOLUME_CLAIMS, pod["metadata"]["namespace"], name)
        except NotFoundError:
            return f'persistentvolumeclaim "{name}" not found'
        if claim["status"]["phase"] != "Bound":
            return "pod has unbound immediate PersistentVolumeClaims"
    return None
