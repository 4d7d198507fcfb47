"""What a person approves, and whether a plan may be carried out (spec.approval: Manual).

Approved are terms: where replicas run, from which image and with which arguments. Terms that run
already need no approval, whatever they were approved by; so the plan in force is read off the
Deployment, and neither a new release of the operator nor a lost status asks anybody again.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.fleet.fleet import Fleet
from tonnage.kube.protocol import Object
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.key import Key
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.serving import newest, pool_now
from tonnage.reconcile.terms import Terms, read_terms


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that waits for a person: its terms, what was decided, and sentences about it.

    `change` is what it would change of what runs; `outdated` what has become of an approval of
    another plan, None where there is none.
    """

    key: Key
    terms: Terms
    placed: Scheduled
    change: str
    outdated: str | None

    def __str__(self) -> str:
        """What waits, and what to do."""
        outdated = f"{self.outdated}; " if self.outdated else ""
        return (
            f"{outdated}plan {self.terms.hash} waits for approval: {self.change}; approve it with"
            f" `kubectl tonnage approve {self.key.name} -n {self.key.namespace}`, or set"
            f" spec.approvedPlan: {self.terms.hash}"
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """How an object stands with approval: the hash of the plan in force, and what waits.

    `held_back` are placements beside the first that go on as they are until a person has said yes
    to what they are to be.
    """

    plan: str | None = None
    proposal: Proposal | None = None
    held_back: frozenset[str] = frozenset()


UNASKED: Final = Standing()
"""Nobody asked to approve anything."""


def terms_of(placed: Scheduled, deployment: Object) -> Terms:
    """The terms of a placement and the Deployment that was rendered for it."""
    option = placed.option
    place = option.pool.name, option.accelerator.id, option.parallelism
    return read_terms(*place, deployment)


def terms_in_force(
    observation: Observation, spec: InferenceDeploymentSpec, fleet: Fleet
) -> Terms | None:
    """The terms of the Deployment that the replicas were told to run on last; None without one."""
    current = newest(observation.deployments)
    return terms_of_live(current, observation, spec, fleet) if current else None


def terms_of_live(
    current: ChildDeployment,
    observation: Observation,
    spec: InferenceDeploymentSpec,
    fleet: Fleet,
) -> Terms:
    """The terms by which a Deployment runs.

    Its pool is the one that its nodes are in by now, whatever its name was then.
    """
    pools = fleet.pools(tolerations=spec.template.spec.tolerations)
    pool = pool_now(current, observation.pods, pools, fleet)
    return read_terms(pool, current.accelerator, current.parallelism, current.child.body)


def is_approved(terms: Terms, spec: InferenceDeploymentSpec, in_force: Terms | None) -> bool:
    """Whether the terms run already, or are those that a person said yes to."""
    return terms == in_force or terms.hash == spec.approved_plan
