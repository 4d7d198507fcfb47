"""The ResourceClaims of the pods of one object."""

from collections.abc import Iterable
from dataclasses import dataclass

from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.fleet.dra.read import read_claim
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.child_pods import ChildPod


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A ResourceClaim of a pod, and the names of the devices that it holds; none before it is
    allocated."""

    name: str
    pod: str
    devices: tuple[str, ...]

    @property
    def state(self) -> str:
        """Whether the claim has its devices."""
        return "allocated" if self.devices else "pending"


def read_pod_claims(
    bodies: Iterable[Object], namespace: str, pods: Iterable[ChildPod]
) -> tuple[PodClaim, ...]:
    """The claims among `bodies` that pods of the namespace own, by pod and name."""
    names = {pod.uid: pod.name for pod in pods if pod.uid}
    claims = [
        PodClaim(str(body["metadata"]["name"]), names[uid], _devices(body))
        for body in bodies
        if body["metadata"]["namespace"] == namespace
        for uid in _owners(body)
        if uid in names
    ]
    return tuple(sorted(claims, key=lambda claim: (claim.pod, claim.name)))


def _owners(body: Object) -> Iterable[str]:
    owners = map(as_mapping, as_sequence(body["metadata"].get("ownerReferences")))
    return (uid for owner in owners if isinstance(uid := owner.get("uid"), str))


def _devices(body: Object) -> tuple[str, ...]:
    claim = read_claim(body)
    return () if claim is None else tuple(map("/".join, claim.devices))
