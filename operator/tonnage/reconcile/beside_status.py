"""The placements beside the first, as status tells them."""

from collections.abc import Iterable, Iterator
from typing import Final

from tonnage.api.status import PlacementStatus
from tonnage.placement.messages import format_count, tell_fit
from tonnage.placement.report import placement_status
from tonnage.reconcile.beside import Beside, image_of
from tonnage.reconcile.outcome import Scheduled

SPREAD: Final = "Spread"
"""Reason of a placement beside the first."""


def beside_status(first: Scheduled, beside: Iterable[Beside]) -> Iterator[PlacementStatus]:
    """One entry each, with its own part of the cost and of the work."""
    for one, share in zip(beside, first.beside, strict=True):
        option = one.placed.option
        replicas = format_count(share.replicas, "replica")
        told = f"{tell_fit(option)}; {replicas} beside {first.option.pool.name}"
        found = placement_status(
            first.decision,
            option,
            image=image_of(one.child),
            replicas=share.replicas,
            ready_replicas=one.live.ready if one.live else 0,
        )
        yield found.model_copy(
            update={
                "reason": SPREAD,
                "message": f"{told} (spec.placement.spread)",
                "weight": share.weight_of(first.shares),
            }
        )
