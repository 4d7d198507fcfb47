"""PersistentVolumeClaims, and what the scheduler says of a pod whose claim has no volume.

Source: Kubernetes pkg/scheduler/framework/plugins/volumebinding/volume_binding.go.
"""

from tests.support.fake_api import FakeApi
from tests.support.production.kinds import CLAIMS
from tonnage.kube.protocol import NotFoundError, Object


def volume_claim(name: str, *, bound: bool, namespace: str = "chat") -> Object:
    """A claim that has a volume, or waits for one for ever."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "status": {"phase": "Bound" if bound else "Pending"},
    }


def unbound_claim(api: FakeApi, pod: Object) -> str | None:
    """Why no node suits the pod, before any node is looked at."""
    for volume in pod["spec"].get("volumes", []):
        source = volume.get("persistentVolumeClaim")
        if source is None:
            continue
        name = source["claimName"]
        try:
            claim = api.object(CLAIMS, pod["metadata"]["namespace"], name)
        except NotFoundError:
            return f'persistentvolumeclaim "{name}" not found'
        if claim["status"]["phase"] != "Bound":
            return "pod has unbound immediate PersistentVolumeClaims"
    return None
