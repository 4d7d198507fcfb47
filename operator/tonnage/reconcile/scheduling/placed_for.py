"""What running replicas were placed for, by the record of their Deployment.

Where nothing that a user sets has changed since, they stay, whatever a later operator calculates.
"""

from typing import Final

from tonnage.placement.model import PlacedFor
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.kept_release import is_unchanged_since_report, was_placed
from tonnage.reconcile.scheduling.context import ReconcileContext

_ANY_TOKENS: Final = 2**62
"""What the replicas hold is not recorded: as many as the spec requires now."""


def find_placed_for(context: ReconcileContext, running: ChildDeployment) -> PlacedFor | None:
    """What the replicas were placed for; None where the rendered part of the spec has changed
    since, or where nothing tells that they were placed for it."""
    recorded, observation = running.record, context.observation
    if recorded is not None:
        if recorded.source.spec != observation.pod_spec_digest(running.engine):
            return None
        demand = recorded.demand
        same_demand = demand.digest == context.demand_digest
        return PlacedFor(demand.tokens, same_demand, demand.replicas or None)
    if is_unchanged_since_report(observation, running) and was_placed(observation):
        return PlacedFor(_ANY_TOKENS, same_demand=True)
    return None
