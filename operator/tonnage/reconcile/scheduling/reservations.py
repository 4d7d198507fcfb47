"""Derive the reservations of GPUs from the operator's Deployments in all namespaces."""

from collections.abc import Iterable

from tonnage.api.names import INFERENCE_DEPLOYMENT, LABEL_OWNER
from tonnage.fleet.model import Reservation
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.children import ChildDeployment, read_deployment


def reserve_for(owner: tuple[str, str], deployment: ChildDeployment) -> Reservation:
    """Reserve what a Deployment holds or will hold for its InferenceDeployment `owner`
    (namespace, name)."""
    return Reservation(
        owner=owner,
        placement=deployment.placement,
        pool=deployment.pool,
        footprint=deployment.parallelism.footprint,
        replicas=deployment.wanted,
    )


def reserve_all(
    owner: tuple[str, str], deployments: Iterable[ChildDeployment]
) -> tuple[Reservation, ...]:
    """Reserve what these Deployments of one object hold or will hold."""
    return tuple(reserve_for(owner, deployment) for deployment in deployments)


def read_reservations(deployments: Iterable[Object]) -> list[Reservation]:
    """Read all reservations from the Deployments of all namespaces, for a new leader."""
    return [
        reserve_for((body["metadata"]["namespace"], owner), read_deployment(body))
        for body in deployments
        if (owner := owner_name(body)) is not None
    ]


def owner_name(body: Object) -> str | None:
    """Name of the InferenceDeployment that controls it; anyone may set the label alone."""
    metadata = body["metadata"]
    controlled = any(
        owner.get("controller") and owner.get("kind") == INFERENCE_DEPLOYMENT
        for owner in metadata.get("ownerReferences") or []
    )
    name = (metadata.get("labels") or {}).get(LABEL_OWNER)
    return name if controlled and isinstance(name, str) else None
