"""Who reserves the GPUs that an object waits for, as far as its user may know.

A user may read the names of objects of the own namespace. Of another namespace the status names
only the namespace, so that the user knows whom to ask.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import PlacementOutcome, Scheduled

_NAMED_HOLDERS: Final = 3


@dataclass(frozen=True, slots=True)
class Holder:
    """An object of the own namespace, or another namespace, and the GPUs that it reserves."""

    name: str
    gpus: int


def find_holders(context: ReconcileContext, outcome: PlacementOutcome) -> tuple[Holder, ...]:
    """Who reserves the most GPUs of the pool that the object waits for; none if it does not wait
    for GPUs."""
    pool, own = _find_pool(outcome), context.observation.key
    if pool is None:
        return ()
    gpus: Counter[str] = Counter()
    for owner, reserved in context.fleet.reserved_gpus(pool).items():
        if owner != own:
            may_know = owner[0] == own[0]
            gpus["/".join(owner) if may_know else f"namespace {owner[0]}"] += reserved
    largest = sorted(gpus.items(), key=lambda item: (-item[1], item[0]))[:_NAMED_HOLDERS]
    return tuple(Holder(name, reserved) for name, reserved in largest)


def format_holders(holders: Sequence[Holder]) -> str:
    """Who reserves the GPUs, as a phrase: 5 are reserved by chat/llama, 3 by namespace team-a."""
    phrases = [f"{holder.gpus} are reserved by {holder.name}" for holder in holders[:1]]
    phrases += [f"{holder.gpus} by {holder.name}" for holder in holders[1:]]
    return ", ".join(phrases)


def _find_pool(outcome: PlacementOutcome) -> str | None:
    """The pool whose GPUs the object waits for."""
    if isinstance(outcome, Scheduled):
        return outcome.option.pool.name if outcome.missing_replicas else None
    return next(
        (
            candidate.pool.name
            for candidate in outcome.decision.candidates
            if candidate.reason == RejectedReason.INSUFFICIENT_GPUS
        ),
        None,
    )
