"""Judges a question by memory, by the checks of vLLM, and by the compatibility rules."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.rules import Settings
from tonnage.cli.fit.engine import Engine, engine_of
from tonnage.fit.legality.compatibility import Compatibility
from tonnage.fit.model import (
    DoesNotFit,
    FitVerdict,
    IllegalParallelism,
    MemoryAccount,
)
from tonnage.fit.questions.question import FitQuestion, answer
from tonnage.fit.sglang.memory import cuts_off

_LENGTH: Final = "ContextLength"
"""Name of the rule for a context that is longer than the model's."""


class Outcome(StrEnum):
    """The verdict in JSON output."""

    FITS = "fits"
    DOES_NOT_FIT = "does_not_fit"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A question and its answer.

    `refusal` says why the model cannot start whatever the memory, `rule` names the rule,
    `by_engine` whether the engine itself refuses. `incompatible`: a compatibility rule refuses it,
    other than for the class of the model. `settings` are those that the server needs,
    `notes` further hints for the user.
    """

    question: FitQuestion
    verdict: FitVerdict
    refusal: str | None = None
    rule: str | None = None
    by_engine: bool = True
    incompatible: bool = False
    settings: Settings = field(default_factory=Settings)
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The outcome, from refusal and verdict."""
        if self.refusal is not None:
            return Outcome.REFUSED
        return Outcome.DOES_NOT_FIT if isinstance(self.verdict, DoesNotFit) else Outcome.FITS

    @property
    def account(self) -> MemoryAccount | None:
        """The memory by term; None for a layout that is refused."""
        return None if isinstance(self.verdict, IllegalParallelism) else self.verdict.account


def judge_for_vllm(question: FitQuestion, catalog: Catalog) -> Judgement:
    """Judge as vLLM would: refusals that do not come from vLLM become notes."""
    compatibility = _check_compatibility(question, (), catalog)
    refusals = compatibility.refusals
    by_engine = (*(one for one in refusals if one.by_engine), *compatibility.without_settings)
    by_rules = tuple(one for one in refusals if not one.by_engine)
    compatibility = replace(compatibility, refusals=by_engine, overridden=by_rules)
    return _judge(question, compatibility, catalog)


def judge_for_user(question: FitQuestion, allow: Collection[str], catalog: Catalog) -> Judgement:
    """Judge as the operator would; `allow` are the rules that the user overrides.

    Raises NotCalculatedError where the memory of SGLang is not calculated.
    """
    judgement = _judge(question, _check_compatibility(question, allow, catalog), catalog)
    return _as_sglang(judgement) if engine_of(question) is Engine.SGLANG else judgement


def _judge(question: FitQuestion, compatibility: Compatibility, catalog: Catalog) -> Judgement:
    verdict = answer(question, catalog)
    overridden = [f"{one.message} (rule {one.rule})" for one in compatibility.overridden]
    options, memory, shape = question.options, question.memory, question.checkpoint.shape
    note = memory.release_note(options, catalog)
    notes = (*overridden, *([note] if note else ()), *compatibility.warnings)
    incompatible = any(not one.model_class for one in compatibility.refusals[:1])
    judgement = Judgement(
        question,
        verdict,
        incompatible=incompatible,
        settings=compatibility.settings,
        notes=notes,
    )
    judgement = _refuse_layout(judgement, memory.explain_too_long(shape, options, catalog))
    if judgement.refusal is None and compatibility.refusals:
        # A refusal of vLLM itself takes precedence.
        first = min(compatibility.refusals, key=lambda one: not one.by_engine)
        return replace(judgement, refusal=first.message, rule=first.rule, by_engine=first.by_engine)
    return judgement


def _as_sglang(judgement: Judgement) -> Judgement:
    """Layouts are refused by vLLM's checks, not by SGLang's own, which cuts off a pool."""
    verdict = judgement.verdict
    if isinstance(verdict, IllegalParallelism):
        return replace(judgement, by_engine=False)
    if judgement.refusal is None and isinstance(verdict, DoesNotFit) and cuts_off(verdict):
        tokens = verdict.account.kv_cache_tokens
        note = f"SGLang itself would start: with a pool of {tokens:,} tokens for all requests"
        return replace(judgement, notes=(*judgement.notes, note))
    return judgement


def _refuse_layout(judgement: Judgement, too_long: str | None) -> Judgement:
    """The judgement with a refusal if the layout is illegal or the context `too_long`."""
    if isinstance(judgement.verdict, IllegalParallelism):
        illegal = judgement.verdict
        return replace(judgement, refusal=illegal.message, rule=illegal.rule)
    if too_long is not None:
        return replace(judgement, refusal=too_long, rule=_LENGTH)
    return judgement


def _check_compatibility(
    question: FitQuestion, allow: Collection[str], catalog: Catalog
) -> Compatibility:
    return question.memory.judge_compatibility(question, allow, catalog)
