"""Formats starts that ran out of memory as one sentence."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.fit.messages import format_count, format_gib, format_parallelism
from tonnage.fit.questions.question import MemoryModel
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    FailedStart,
    MemoryShortfall,
    ShortfallKind,
)
from tonnage.placement.messages import format_adjustments

_NEEDS: Final = {
    ShortfallKind.FREE_MEMORY: "its share of the GPU needs",
    ShortfallKind.KV_CACHE: "its KV cache needs",
    ShortfallKind.ALLOCATION: "its last allocation needs",
}


def explain_adjustments(adjustments: EngineAdjustments, engine: MemoryModel) -> str | None:
    """Name the settings that Tonnage lowered, and why; None where it lowered none."""
    if adjustments == UNADJUSTED:
        return None
    settings = " and ".join(format_adjustments(adjustments, engine))
    return f"Tonnage set {settings} because starts with higher values ran out of memory"


def format_failed_starts(
    tried: Sequence[FailedStart], accelerator: Accelerator, engine: MemoryModel
) -> str:
    """Format all starts of the engine on this accelerator, or that too many failed elsewhere to try
    it."""
    here = [one for one in tried if one.is_of(engine.name, accelerator.id)]
    if not here:
        starts = format_count(len(tried), "start")
        return f"not tried because {starts} on other devices ran out of memory"
    ordered = sorted(here, key=lambda one: one.parallelism.gpus)  # stable: starts stay in order
    by_parallelism = [
        f"with {format_parallelism(parallelism)}{_format_steps(starts, engine)}"
        for parallelism, starts in groupby(ordered, key=lambda one: one.parallelism)
    ]
    return f"ran out of memory {'; '.join(by_parallelism)}{_format_last(here[-1].shortfall)}"


def _format_steps(starts: Iterable[FailedStart], engine: MemoryModel) -> str:
    """Format what each start changed from the one before it: ", then with maxNumSeqs 512"."""
    steps: list[str] = []
    before = UNADJUSTED
    for start in starts:
        changed = format_adjustments(start.adjustments.difference(before), engine)
        steps += [f", then with {' and '.join(changed)}"] if changed else []
        before = start.adjustments
    return "".join(steps)


def _format_last(shortfall: MemoryShortfall | None) -> str:
    """Format the memory that the last start lacked, in brackets; empty where unreported."""
    if shortfall is None or shortfall.needed_bytes is None or shortfall.available_bytes is None:
        return ""
    needed, available = format_gib(shortfall.needed_bytes), format_gib(shortfall.available_bytes)
    return f" (the last start had {available} of the {needed} GiB that {_NEEDS[shortfall.kind]})"
