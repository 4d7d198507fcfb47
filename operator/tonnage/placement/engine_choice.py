"""Judges pools where the spec leaves the engine to the operator: with every engine, of which one is
taken for each pool.

Algorithm. `fit.legality.engine_choice` chooses between the engines of new replicas. Replicas that
run keep their engine: their own pool is judged with that engine alone, and others with it first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tonnage.api.inference import DEFAULT_ENGINE
from tonnage.catalog.catalog import Catalog
from tonnage.fit.legality.engine_choice import (
    Contest,
    EngineAnswer,
    choose_engine,
    explain_missing_class,
    join_reasons,
)
from tonnage.fleet.model import Pool
from tonnage.placement.cache import PlacementCache
from tonnage.placement.judge import PoolJudge
from tonnage.placement.load import Load
from tonnage.placement.messages import format_fit
from tonnage.placement.model import Option, Rejection, Request
from tonnage.placement.reasons import RejectedReason, nearness
from tonnage.placement.scoring.compare import Ranked

PoolVerdict = Option | Rejection

_OF_NO_ENGINE: Final = frozenset(
    {
        RejectedReason.INVALID_POD_TEMPLATE,
        RejectedReason.UNRECOGNISED,
        RejectedReason.NOT_SELECTED,
        RejectedReason.NOT_ALLOWED,
    }
)
"""Reasons against a pool whatever the engine."""


class EngineJudge:
    """Judges the pools for one request with all engines of its spec."""

    def __init__(
        self, request: Request, catalog: Catalog, cache: PlacementCache | None = None
    ) -> None:
        cache = cache or PlacementCache()
        self._request = request
        self._catalog = catalog
        self._refused = dict(request.refused_engines)
        self._judges: dict[str, PoolJudge] = {}
        for name in request.spec.engine.choices:
            if name not in self._refused:
                self._judges[name] = PoolJudge(request.for_engine(name), catalog, cache)
        self._refuse_unknown_classes()
        self._running = {one.pool: one.engine for one in request.secondary}
        if request.keep is not None:
            self._running[request.keep[0]] = request.kept_engine
        first = next(iter(self._judges.values()), None)
        self._known = first.verdicts.taken if first else {}
        self._inputs = (
            request.keep and request.kept_engine,
            *map(str, sorted(self._refused.items())),
        )

    def _refuse_unknown_classes(self) -> None:
        """An engine without code for the model is refused unless its replicas run."""
        request = self._request
        running = {one.engine for one in request.secondary}
        running |= set() if request.keep is None else {request.kept_engine}
        for name, judge in list(self._judges.items()):
            shape, release = request.checkpoint.shape, _release(judge.load, self._catalog)
            missing = explain_missing_class(name, release, shape)
            if missing is not None and name not in running and len(self._judges) > 1:
                self._refused[name] = missing
                del self._judges[name]

    def judge(self, pool: Pool) -> PoolVerdict:
        """Return the best option of the engine that is taken for the pool, with the reason, or why
        no engine has one."""
        verdicts: dict[str, PoolVerdict] = {
            name: judge.judge(pool) for name, judge in self._judges.items()
        }
        # Most verdicts are those of the last plan, and so is the choice between them.
        known, inputs = self._known, (self._running.get(pool.name), *verdicts.values())
        cached = known.get(pool.name)
        if cached is None or not _are_same(cached[0], (*self._inputs, *inputs)):
            cached = known[pool.name] = (*self._inputs, *inputs), self._take(pool, verdicts)
        return cached[1]

    def options(self, pool: Pool) -> Sequence[Option] | Rejection:
        """Return every parallelism on the pool with the engine that is taken there."""
        taken = self.judge(pool)
        if isinstance(taken, Rejection):
            return taken
        options = self._judges[taken.engine].options(pool)
        if isinstance(options, Rejection):
            return options
        return [replace(option, engine_reason=taken.engine_reason) for option in options]

    def rank(self, option: Option) -> Ranked:
        """Return the rank of an option by the request."""
        return self._judges[option.engine].rank(option)

    def _take(self, pool: Pool, verdicts: Mapping[str, PoolVerdict]) -> PoolVerdict:
        options = {name: one for name, one in verdicts.items() if isinstance(one, Option)}
        running = self._running.get(pool.name)
        if running is not None and running not in options:
            return verdicts.get(running) or self._reject(verdicts)
        kept = self._request.kept_engine if running is None and self._request.keep else running
        chosen = self._choose(pool, verdicts, options)
        if kept in options and (chosen is None or chosen[0] != kept):
            chosen = kept, f"its replicas run with {kept}"
        if chosen is None:
            return self._reject(verdicts)
        name, why = chosen
        return replace(options[name], engine_reason=why)

    def _choose(
        self, pool: Pool, verdicts: Mapping[str, PoolVerdict], options: Mapping[str, Option]
    ) -> tuple[str, str] | None:
        """Return the engine for new replicas, and why; None where none is known to run it."""
        first = next(iter(options), None)
        if first is None:
            return None
        assert pool.accelerator is not None, "an option has an accelerator"
        load = self._judges[first].load
        contest = Contest(
            load.checkpoint.shape,
            pool.accelerator,
            load.options,
            {name: _release(self._judges[name].load, self._catalog) for name in options},
            self._answers(verdicts),
        )
        return choose_engine(contest, DEFAULT_ENGINE, self._catalog)

    def _reject(self, verdicts: Mapping[str, PoolVerdict]) -> Rejection:
        """Return the rejection by the engine that came nearest, with the reasons of all."""
        rejections = {name: one for name, one in verdicts.items() if isinstance(one, Rejection)}
        if not rejections:
            return Rejection(RejectedReason.INCOMPATIBLE, join_reasons(self._answers(verdicts)))
        nearest = min(rejections.values(), key=lambda one: nearness(one.reason))
        same = {one.message for one in rejections.values()} == {nearest.message}
        is_of_all = same and len(rejections) == len(verdicts) and not self._refused
        if nearest.reason in _OF_NO_ENGINE or is_of_all:
            return nearest
        message = join_reasons(self._answers(verdicts), unproven=True)
        option = nearest.option and replace(nearest.option, engine_reason="")
        return replace(nearest, message=message, option=option)

    def _answers(self, verdicts: Mapping[str, PoolVerdict]) -> Sequence[EngineAnswer]:
        """Return what every engine of the spec says about the pool."""
        answers = {name: EngineAnswer(name, False, why) for name, why in self._refused.items()}
        for name, verdict in verdicts.items():
            if isinstance(verdict, Rejection):
                by_rule = verdict.reason is RejectedReason.INCOMPATIBLE
                answers[name] = EngineAnswer(name, False, verdict.message, by_rule)
            else:
                answers[name] = EngineAnswer(name, True, format_fit(verdict))
        return [answers[name] for name in self._request.spec.engine.choices if name in answers]


Judge = PoolJudge | EngineJudge


def judge_for(request: Request, catalog: Catalog, cache: PlacementCache | None = None) -> Judge:
    """Return what judges pools for the request.

    Raises fit.options.InvalidOptionError for invalid engine settings.
    """
    if request.spec.engine.is_open:
        return EngineJudge(request, catalog, cache)
    return PoolJudge(request, catalog, cache)


def _are_same(before: Sequence[object], now: Sequence[object]) -> bool:
    """Whether these are the same verdicts, for the same replicas and refused engines."""
    return len(before) == len(now) and all(
        one is other or (isinstance(one, str) and one == other)
        for one, other in zip(before, now, strict=True)
    )


def _release(load: Load, catalog: Catalog) -> str:
    return load.memory.release(load.options, catalog)
