"""The OOM fallback plan: ever lower engine settings, from the catalogue's oom_fallback.yaml."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Final

from pydantic import Field

from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.placement.adjustments import EngineAdjustments, EngineSetting, ShortfallKind

UnitInterval = Annotated[float, Field(gt=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1)]


class Halving(Entry):
    """A setting that is divided at each step, down to a floor."""

    divisor: Annotated[int, Field(ge=2)]
    floor: PositiveInt
    source: str
    date: str

    def next_below(self, value: int | None) -> int | None:
        """The next lower value; None where there is none, or the setting must not change."""
        lower = (value or 0) // self.divisor
        return lower if lower >= self.floor else None


class Stepping(Entry):
    """A share that is reduced by the same amount at each step, down to a floor."""

    step: UnitInterval
    floor: UnitInterval
    source: str
    date: str

    def next_below(self, value: float | None) -> float | None:
        """The next lower value; None where there is none, or the setting must not change."""
        lower = round((value or 0.0) - self.step, 2)
        return lower if lower >= self.floor else None


class LowerSettings(Entry):
    """How the settings of an engine decrease. `turns` are those to lower for each kind of
    shortfall, in rotation."""

    max_num_batched_tokens: Halving
    max_num_seqs: Halving | None = None
    gpu_memory_utilization: Stepping
    turns: Mapping[ShortfallKind, Sequence[EngineSetting]]

    def steps(
        self,
        kind: ShortfallKind,
        initial: EngineAdjustments,
        is_accepted: Callable[[EngineAdjustments], bool],
    ) -> Iterator[EngineAdjustments]:
        """Generate ever lower settings until each is at its floor, or the engine accepts no lower
        one. `initial` are those before any adjustment; settings that it leaves out never change."""
        current, adjustable = initial, list(self.turns.get(kind, ()))
        while adjustable:
            for setting in tuple(adjustable):
                lower = _LOWER[setting](self, current)
                if lower == current or not is_accepted(lower):
                    adjustable.remove(setting)
                    continue
                current = lower
                yield current


class OOMFallbackPlan(Entry):
    """The whole file; `engines` by name."""

    starts: PositiveInt
    starts_of_first_parallelism: PositiveInt
    starts_of_further_parallelisms: PositiveInt
    engines: Mapping[str, LowerSettings]


@lru_cache(maxsize=1)
def load_oom_fallback_plan() -> OOMFallbackPlan:
    """Load the file, once. A pydantic.ValidationError is a mistake in the package."""
    return OOMFallbackPlan.model_validate(read_data_file("oom_fallback.yaml"))


def _lower_batch(plan: LowerSettings, current: EngineAdjustments) -> EngineAdjustments:
    tokens = plan.max_num_batched_tokens.next_below(current.max_num_batched_tokens)
    return replace(current, max_num_batched_tokens=tokens or current.max_num_batched_tokens)


def _lower_sequences(plan: LowerSettings, current: EngineAdjustments) -> EngineAdjustments:
    sequences = plan.max_num_seqs and plan.max_num_seqs.next_below(current.max_num_seqs)
    return replace(current, max_num_seqs=sequences or current.max_num_seqs)


def _lower_utilization(plan: LowerSettings, current: EngineAdjustments) -> EngineAdjustments:
    share = plan.gpu_memory_utilization.next_below(current.gpu_memory_utilization)
    return replace(current, gpu_memory_utilization=share or current.gpu_memory_utilization)


_LOWER: Final[
    Mapping[EngineSetting, Callable[[LowerSettings, EngineAdjustments], EngineAdjustments]]
] = {
    EngineSetting.MAX_NUM_BATCHED_TOKENS: _lower_batch,
    EngineSetting.MAX_NUM_SEQS: _lower_sequences,
    EngineSetting.GPU_MEMORY_UTILIZATION: _lower_utilization,
}
