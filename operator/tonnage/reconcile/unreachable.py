"""Replicas that nobody can reach, since a name that they need is another's: they hold no GPUs.

A first Deployment is made before anybody has asked whose the name of its Service is. Where the look
that follows finds it taken, the status says so, and the next one deletes the Deployment: in this
order no crash makes it again. What serves, or served once, stays: its users may reach it yet.
"""

from tonnage.api.conditions import ConditionType, Reason
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.accept import Refused
from tonnage.reconcile.actions import Delete
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.ready_plan import read_last_ready


def give_back(observation: Observation, refused: Refused) -> tuple[Delete, ...]:
    """The Deployments to be deleted, where the name is taken for as long as nobody frees it."""
    if refused.reason is not Reason.NAME_CONFLICT or refused.passing or may_serve(observation):
        return ()
    return tuple(
        Delete(DEPLOYMENTS, observation.key.namespace, found.child)
        for found in observation.deployments
    )


def was_taken(observation: Observation) -> bool:
    """Whether the last look found a name taken."""
    conditions = observation.previous_status.get("conditions") or []
    told = (ConditionType.ACCEPTED, Reason.NAME_CONFLICT)
    return any((found.get("type"), found.get("reason")) == told for found in conditions)


def may_serve(observation: Observation) -> bool:
    """Whether anybody can reach a replica, or could once."""
    return (
        observation.service is not None
        or read_last_ready(observation.previous_status) is not None
        or any(found.ready > 0 for found in observation.deployments)
    )
