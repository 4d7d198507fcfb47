"""The ResourceClaims of the pods of one object."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.child_pods import ChildPod


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A ResourceClaim of a pod, and the names of the devices of any driver that it was given;
    `state` is whether it has them."""

    name: str
    pod: str
    state: str
    devices: tuple[str, ...]


def read_pod_claims(
    bodies: Iterable[Object], namespace: str, pods: Iterable[ChildPod]
) -> tuple[PodClaim, ...]:
    """The claims among `bodies` of pods of the namespace, by pod and name."""
    names = {pod.uid: pod.name for pod in pods if pod.uid}
    claims = [
        _read_claim(body, names[uid])
        for body in bodies
        if body["metadata"]["namespace"] == namespace
        for uid in _users(body)
        if uid in names
    ]
    return tuple(sorted(claims, key=lambda claim: (claim.pod, claim.name)))


def _users(body: Object) -> set[str]:
    """The uids of the pods that the claim was made for, or is reserved for."""
    owners = as_sequence(body["metadata"].get("ownerReferences"))
    reserved = as_sequence(as_mapping(body.get("status")).get("reservedFor"))
    uids = (as_mapping(each).get("uid") for each in (*owners, *reserved))
    return {uid for uid in uids if isinstance(uid, str)}


def _read_claim(body: Object, pod: str) -> PodClaim:
    allocation = as_mapping(body.get("status")).get("allocation")
    results = as_mapping(as_mapping(allocation).get("devices")).get("results")
    return PodClaim(
        name=str(body["metadata"]["name"]),
        pod=pod,
        state="pending" if allocation is None else "allocated",
        devices=tuple(map(_device, map(as_mapping, as_sequence(results)))),
    )


def _device(result: Mapping[str, Any]) -> str:
    name = "/".join(str(result.get(part)) for part in ("driver", "pool", "device"))
    return f"{name} (admin access)" if result.get("adminAccess") is True else name
