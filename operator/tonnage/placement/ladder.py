"""The ladder: engine settings, lower from rung to rung, from the catalogue's next_plans.yaml."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from tonnage.catalog.data_files import read_data_file
from tonnage.placement.adjustments import EngineAdjustments, Knob, ShortfallKind

Share = Annotated[float, Field(gt=0, lt=1)]
Whole = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the file; unknown keys are refused, so that a typo is found by the first test."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Halving(Section):
    """A setting that is divided at each of its turns, down to a floor."""

    divisor: Annotated[int, Field(ge=2)]
    floor: Whole
    source: str
    date: str

    def below(self, value: int | None) -> int | None:
        """The next lower value; None where there is none, or the setting is not to be touched."""
        lower = (value or 0) // self.divisor
        return lower if lower >= self.floor else None


class Stepping(Section):
    """A share that goes down by the same step at each of its turns, down to a floor."""

    step: Share
    floor: Share
    source: str
    date: str

    def below(self, value: float | None) -> float | None:
        """The next lower value; None where there is none, or the setting is not to be touched."""
        lower = round((value or 0.0) - self.step, 2)
        return lower if lower >= self.floor else None


class Ladder(Section):
    """The whole file."""

    starts: Whole
    starts_of_first_split: Whole
    starts_of_further_splits: Whole
    max_num_batched_tokens: Halving
    max_num_seqs: Halving
    gpu_memory_utilization: Stepping
    turns: Mapping[ShortfallKind, Sequence[Knob]]

    def rungs(
        self,
        kind: ShortfallKind,
        top: EngineAdjustments,
        is_accepted: Callable[[EngineAdjustments], bool],
    ) -> Iterator[EngineAdjustments]:
        """Ever lower settings, ending where each is at its floor, or vLLM accepts no lower one.
        `top` are those in force before any adjustment; what it leaves out is not touched."""
        now, moving = top, list(self.turns[kind])
        while moving:
            for knob in tuple(moving):
                lower = _LOWER[knob](self, now)
                if lower == now or not is_accepted(lower):
                    moving.remove(knob)
                    continue
                now = lower
                yield now


@lru_cache(maxsize=1)
def load_ladder() -> Ladder:
    """The file's content, read once. A pydantic.ValidationError is a mistake in the package."""
    return Ladder.model_validate(read_data_file("next_plans.yaml"))


def _shorter_batch(ladder: Ladder, now: EngineAdjustments) -> EngineAdjustments:
    tokens = ladder.max_num_batched_tokens.below(now.max_num_batched_tokens)
    return replace(now, max_num_batched_tokens=tokens or now.max_num_batched_tokens)


def _fewer_sequences(ladder: Ladder, now: EngineAdjustments) -> EngineAdjustments:
    sequences = ladder.max_num_seqs.below(now.max_num_seqs)
    return replace(now, max_num_seqs=sequences or now.max_num_seqs)


def _smaller_share(ladder: Ladder, now: EngineAdjustments) -> EngineAdjustments:
    share = ladder.gpu_memory_utilization.below(now.gpu_memory_utilization)
    return replace(now, gpu_memory_utilization=share or now.gpu_memory_utilization)


_LOWER: Final[Mapping[Knob, Callable[[Ladder, EngineAdjustments], EngineAdjustments]]] = {
    Knob.MAX_NUM_BATCHED_TOKENS: _shorter_batch,
    Knob.MAX_NUM_SEQS: _fewer_sequences,
    Knob.GPU_MEMORY_UTILIZATION: _smaller_share,
}
