"""Describe what a proposed plan would change, and why an approval of another one is outdated.

Arguments are named by their flags alone: a user's own may carry a key, and more people read a
status than a spec.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import ProposedPlan
from tonnage.api.text import truncate
from tonnage.catalog.prices import format_money
from tonnage.fit.messages import format_count, format_parallelism
from tonnage.placement.pricing import NO_PRICE
from tonnage.placement.report import optional_sizes, read_parallelism
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.plan_terms import Terms
from tonnage.reconcile.observation.previous import read_reported
from tonnage.reconcile.rollout.differences import compare, list_differences, named_terms
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import Scheduled

_MAX_WHY_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits for a person: its terms, the placement, and sentences about it.

    `change` is what it would change of what runs; `outdated` why an approval of another plan does
    not count, None where there is none.
    """

    key: Key
    terms: Terms
    placed: Scheduled
    change: str
    outdated: str | None

    def __str__(self) -> str:
        """What waits, and how to approve it."""
        outdated = f"{self.outdated}; " if self.outdated else ""
        return (
            f"{outdated}plan {self.terms.hash} waits for approval: {self.change}; approve it with"
            f" `kubectl tonnage approve {self.key.name} -n {self.key.namespace}`, or set"
            f" spec.approvedPlan: {self.terms.hash}"
        )


def propose(
    context: ReconcileContext,
    terms: Terms,
    placed: Scheduled,
    in_force: Terms | None,
    *,
    secondary: bool = False,
) -> Proposal:
    """Propose a placement that no person has approved; a `secondary` one leaves the others as they
    are."""
    format_change = _format_secondary_change if secondary else _format_change
    return Proposal(
        key=context.observation.key,
        terms=terms,
        placed=placed,
        change=format_change(terms, placed, in_force),
        outdated=_format_outdated(context.observation, context.spec, terms, in_force),
    )


def proposed_plan(proposal: Proposal) -> ProposedPlan:
    """The proposal as the status has it."""
    terms, option = proposal.terms, proposal.placed.option
    cost = option.cost_per_hour
    return ProposedPlan(
        hash=terms.hash,
        pool=terms.pool,
        accelerator=terms.accelerator,
        tensor_parallel_size=terms.parallelism.tensor,
        pipeline_parallel_size=terms.parallelism.pipeline,
        **optional_sizes(terms.parallelism),
        replicas=option.replicas,
        image=terms.image,
        cost_per_hour=None if cost is None else format_money(cost),
        message=proposal.change,
        outdated_approval=proposal.outdated,
    )


def _format_change(terms: Terms, placed: Scheduled, in_force: Terms | None) -> str:
    option = placed.option
    cost = NO_PRICE if option.cost_per_hour is None else f"{format_money(option.cost_per_hour)}/h"
    replicas = format_count(option.replicas, "replica")
    if in_force is None:
        where = f"pool {terms.pool} ({terms.accelerator}, {format_parallelism(terms.parallelism)})"
        return f"nothing runs yet, it would start {replicas} on {where} from {terms.image}, {cost}"
    change = f"it would change {', '.join(list_differences(in_force, terms))}; {replicas}, {cost}"
    if placed.last_migration is None:
        return change
    return f"{change}; because {truncate(placed.last_migration.why, _MAX_WHY_BYTES)}"


def _format_secondary_change(terms: Terms, placed: Scheduled, in_force: Terms | None) -> str:
    if in_force is not None:
        return f"next to the first pool {_format_change(terms, placed, in_force)}"
    option = placed.option
    cost = NO_PRICE if option.cost_per_hour is None else f"{format_money(option.cost_per_hour)}/h"
    where = f"pool {terms.pool} ({terms.accelerator}, {format_parallelism(terms.parallelism)})"
    replicas = format_count(option.replicas, "replica")
    start = f"it would start {replicas} in addition to the running ones"
    return f"{start}, on {where} from {terms.image}, {cost}"


def _format_outdated(
    observation: Observation,
    spec: InferenceDeploymentSpec,
    terms: Terms,
    in_force: Terms | None,
) -> str | None:
    """What has changed since a person approved another plan.

    The comparison is with the proposal of that time, as the status has it; a reported sentence
    stays.
    """
    approved = spec.approved_plan
    if approved is None or (in_force is not None and approved == in_force.hash):
        return None
    prefix = f"approved {approved}, now {terms.hash}:"
    earlier = read_reported(ProposedPlan, observation.previous_status.get("proposedPlan"))
    if earlier is not None and earlier.hash == approved:
        proposed = {
            "pool": earlier.pool,
            "accelerator": earlier.accelerator,
            "parallelism": format_parallelism(read_parallelism(earlier)),
            "image": earlier.image,
        }
        changed = list(compare(proposed, named_terms(terms))) or ["the arguments"]
        return f"{prefix} the plan changed since ({', '.join(changed)})"
    reported = earlier.outdated_approval if earlier is not None else None
    if reported is not None and reported.startswith(prefix):
        return reported
    return f"{prefix} the approval is of another plan, from before the spec or the fleet changed"
