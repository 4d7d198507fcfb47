"""Replicas of what runs, while another plan waits for approval: their number needs none."""

from collections.abc import Iterable

from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
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
    """What brings the replicas to the number that the user asks for, or the measured load, as far
    as there is room for them as they are; None where nothing is to be done, or the workload decides
    the number."""
    current = newest(observation.deployments)
    asked = accepted.asked_on(current.placement) if current else None
    wanted = asked_beside(asked, current, observation.deployments) if current else None
    if current is None or wanted is None:
        return None
    if wanted > current.wanted:
        pools = pools_for(observation, accepted, fleet, turn)
        pool = pool_now(current, observation.pods, pools, fleet)
        room = room_in(pools, pool, current.parallelism.gpus)
        wanted = max(current.wanted, min(wanted, room))
    if wanted == current.wanted:
        return None
    return Scale(DEPLOYMENTS, observation.key.namespace, current.child, wanted)


def asked_beside(
    asked: int | None, current: ChildDeployment, deployments: Iterable[ChildDeployment]
) -> int | None:
    """The replicas that are asked for less those beside, which go on as they are; each counts one,
    and one at least is kept."""
    if not asked:
        return asked
    beside = sum(one.wanted for one in deployments if one.beside and one is not current)
    return max(1, asked - beside)


def room_in(pools: Iterable[Pool], name: str, gpus: int) -> int:
    """How many replicas of so many GPUs the pool of this name has room for."""
    return next((pool.room_for(gpus) for pool in pools if pool.name == name), 0)
