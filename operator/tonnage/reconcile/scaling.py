"""Replicas of what runs, while another plan waits for approval: their number needs none."""

from tonnage.fleet.fleet import Fleet
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.actions import Scale
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.place import pools_for
from tonnage.reconcile.serving import newest, pool_now
from tonnage.reconcile.turn import Turn


def scale_in_force(
    observation: Observation, accepted: Accepted, fleet: Fleet, turn: Turn
) -> Scale | None:
    """What brings the replicas to the number that the user asks for, as far as there is room for
    them as they are; None where nothing is to be done, or the workload decides the number."""
    current, wanted = newest(observation.deployments), accepted.spec.replicas
    if current is None or wanted is None:
        return None
    if wanted > current.wanted:
        room = _room(observation, accepted, fleet, turn, current)
        wanted = max(current.wanted, min(wanted, room))
    if wanted == current.wanted:
        return None
    return Scale(DEPLOYMENTS, observation.key.namespace, current.child, wanted)


def _room(
    observation: Observation,
    accepted: Accepted,
    fleet: Fleet,
    turn: Turn,
    current: ChildDeployment,
) -> int:
    """How many of its replicas the pool has room for, its own among them."""
    pools = pools_for(observation, accepted, fleet, turn)
    name = pool_now(current, observation.pods, pools, fleet)
    found = next((pool for pool in pools if pool.name == name), None)
    return found.room_for(current.parallelism.gpus) if found else 0
