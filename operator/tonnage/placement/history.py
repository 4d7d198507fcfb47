"""Starts that died of memory, told in one sentence."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    MemoryShortfall,
    ShortfallKind,
    Tried,
)
from tonnage.placement.messages import format_adjustments, format_count, format_gib, format_split

_WANTS: Final = {
    ShortfallKind.FREE_MEMORY: "it takes of a GPU",
    ShortfallKind.KV_CACHE: "its KV cache needs",
    ShortfallKind.ALLOCATION: "it asked for at the end",
}


def tell_adjustments(adjustments: EngineAdjustments) -> str | None:
    """Which settings are Tonnage's own, and why; None where there are none."""
    if adjustments == UNADJUSTED:
        return None
    settings = " and ".join(format_adjustments(adjustments))
    return f"Tonnage chose {settings}, since starts without died of memory"


def tell_tried(tried: Sequence[Tried], accelerator: Accelerator) -> str:
    """All starts on devices of a kind, or that too many died elsewhere for one on these."""
    here = [one for one in tried if one.accelerator_id == accelerator.id]
    if not here:
        return f"not tried: {format_count(len(tried), 'start')} on other devices died of memory"
    ordered = sorted(here, key=lambda one: one.parallelism.gpus)  # Starts of a split stay in order.
    splits = [
        f"with {format_split(parallelism)}{_tell_steps(one.adjustments for one in starts)}"
        for parallelism, starts in groupby(ordered, key=lambda one: one.parallelism)
    ]
    return f"died of memory {'; '.join(splits)}{_tell_last(here[-1].shortfall)}"


def _tell_steps(starts: Iterable[EngineAdjustments]) -> str:
    """What each start changed of the one before it: ", then maxNumSeqs 512"."""
    steps: list[str] = []
    before = UNADJUSTED
    for adjustments in starts:
        changed = format_adjustments(adjustments.apart_from(before))
        steps += [f", then {' and '.join(changed)}"] if changed else []
        before = adjustments
    return "".join(steps)


def _tell_last(shortfall: MemoryShortfall | None) -> str:
    """What the last start lacked, in brackets; empty where it did not say."""
    if shortfall is None or shortfall.needed_bytes is None or shortfall.available_bytes is None:
        return ""
    needed, had = format_gib(shortfall.needed_bytes), format_gib(shortfall.available_bytes)
    return f" (the last had {had} of the {needed} GiB that {_WANTS[shortfall.kind]})"
