"""What a proposed plan would change, and what became of an approval of another one, in words.

Arguments are named by their flags alone: a user's own may carry a key, and a status is read by more
people than a spec is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import ProposedPlan
from tonnage.api.text import truncate
from tonnage.fit.model import Parallelism
from tonnage.placement.messages import format_count, format_split
from tonnage.placement.pricing import NO_PRICE, format_money
from tonnage.reconcile.context import ReconcileContext
from tonnage.reconcile.key import Key
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.reported import read_reported
from tonnage.reconcile.terms import Terms

_MODEL: Final = "the model"
_MAX_WHY_BYTES: Final = 300


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


def propose(
    context: ReconcileContext,
    terms: Terms,
    placed: Scheduled,
    in_force: Terms | None,
    *,
    secondary: bool = False,
) -> Proposal:
    """The proposal to carry out a placement that nobody has approved; a `secondary` one leaves the
    others as they are."""
    change = _tell_beside if secondary else _tell_change
    return Proposal(
        key=context.observation.key,
        terms=terms,
        placed=placed,
        change=change(terms, placed, in_force),
        outdated=_tell_outdated(context.observation, context.spec, terms, in_force),
    )


def proposed_plan(proposal: Proposal) -> ProposedPlan:
    """The proposal as status has it."""
    terms, option = proposal.terms, proposal.placed.option
    cost = option.cost_per_hour
    return ProposedPlan(
        hash=terms.hash,
        pool=terms.pool,
        accelerator=terms.accelerator,
        tensor_parallel_size=terms.parallelism.tensor,
        pipeline_parallel_size=terms.parallelism.pipeline,
        replicas=option.replicas,
        image=terms.image,
        cost_per_hour=None if cost is None else format_money(cost),
        message=proposal.change,
        outdated_approval=proposal.outdated,
    )


def _tell_change(terms: Terms, placed: Scheduled, in_force: Terms | None) -> str:
    option = placed.option
    cost = NO_PRICE if option.cost_per_hour is None else f"{format_money(option.cost_per_hour)}/h"
    replicas = format_count(option.replicas, "replica")
    if in_force is None:
        where = f"pool {terms.pool} ({terms.accelerator}, {format_split(terms.parallelism)})"
        return f"nothing runs yet, it would start {replicas} on {where} from {terms.image}, {cost}"
    told = f"it would change {', '.join(_differences(in_force, terms))}; {replicas}, {cost}"
    if placed.moved is None:
        return told
    return f"{told}; because {truncate(placed.moved.why, _MAX_WHY_BYTES)}"


def _tell_beside(terms: Terms, placed: Scheduled, in_force: Terms | None) -> str:
    if in_force is not None:
        return f"beside the first pool {_tell_change(terms, placed, in_force)}"
    option = placed.option
    cost = NO_PRICE if option.cost_per_hour is None else f"{format_money(option.cost_per_hour)}/h"
    where = f"pool {terms.pool} ({terms.accelerator}, {format_split(terms.parallelism)})"
    replicas = format_count(option.replicas, "replica")
    return f"it would start {replicas} beside those that run, on {where} from {terms.image}, {cost}"


def _differences(before: Terms, after: Terms) -> Iterator[str]:
    yield from _named_differences(_essentials(before), _essentials(after))
    flags = list(_changed_flags(before.arguments, after.arguments))
    if flags:
        yield f"arguments ({', '.join(flags)})"
    if before.command != after.command:
        yield "the command of the container"
    yield from _named_differences({"volume": before.claim}, {"volume": after.claim})


def _essentials(terms: Terms) -> dict[str, str]:
    return {
        "pool": terms.pool,
        "accelerator": terms.accelerator,
        "split": format_split(terms.parallelism),
        "image": terms.image,
    }


def _named_differences(
    before: Mapping[str, str | None], after: Mapping[str, str | None]
) -> Iterator[str]:
    for name, value in after.items():
        if before[name] != value:
            yield f"{name} from {before[name] or 'none'} to {value or 'none'}"


def _changed_flags(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Names of the flags that are given otherwise than before, in their order."""
    old, new = _by_flag(before), _by_flag(after)
    for flag in dict.fromkeys([*new, *old]):
        if old.get(flag) != new.get(flag):
            yield flag


def _by_flag(arguments: Iterable[str]) -> dict[str, list[str]]:
    """The arguments by their flag, a value that stands alone with the flag before it; the first of
    all is the model."""
    found: dict[str, list[str]] = {}
    flag = _MODEL
    for argument in arguments:
        if argument.startswith("-"):
            flag = argument.partition("=")[0]
        found.setdefault(flag, []).append(argument)
    return found


def _tell_outdated(
    observation: Observation,
    spec: InferenceDeploymentSpec,
    terms: Terms,
    in_force: Terms | None,
) -> str | None:
    """What has changed since a person approved another plan.

    It is told by the proposal of that time, as status had it; what was told once stays.
    """
    approved = spec.approved_plan
    if approved is None or (in_force is not None and approved == in_force.hash):
        return None
    begin = f"approved {approved}, now {terms.hash}:"
    before = read_reported(ProposedPlan, observation.previous_status.get("proposedPlan"))
    if before is not None and before.hash == approved:
        split = Parallelism(before.tensor_parallel_size, before.pipeline_parallel_size)
        proposed = {
            "pool": before.pool,
            "accelerator": before.accelerator,
            "split": format_split(split),
            "image": before.image,
        }
        changed = list(_named_differences(proposed, _essentials(terms))) or ["the arguments"]
        return f"{begin} the plan changed since ({', '.join(changed)})"
    told = before.outdated_approval if before is not None else None
    if told is not None and told.startswith(begin):
        return told
    return f"{begin} the approval is of another plan, from before the spec or the fleet changed"
