"""Judges a question by memory, by the checks of vLLM, and by the compatibility rules."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.rules import Settings
from tonnage.fit.context import tell_too_long
from tonnage.fit.legality.compatibility import Compatibility, judge_compatibility
from tonnage.fit.model import DoesNotFit, FitVerdict, IllegalParallelism, MemoryAccount
from tonnage.fit.questions.question import FitQuestion, answer

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

    `refusal` says why the model cannot start whatever the memory, `rule` names the rule, `by_vllm`
    whether vLLM itself refuses. `settings` are those that the server needs, `notes` further hints
    for the user.
    """

    question: FitQuestion
    verdict: FitVerdict
    refusal: str | None = None
    rule: str | None = None
    by_vllm: bool = True
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
        """The memory by term; None for a layout that vLLM refuses."""
        return None if isinstance(self.verdict, IllegalParallelism) else self.verdict.account


def judge_for_vllm(question: FitQuestion, catalog: Catalog) -> Judgement:
    """Judge as vLLM would: refusals that do not come from vLLM become notes."""
    compatibility = _check_compatibility(question, (), catalog)
    refusals = compatibility.refusals
    by_vllm = (*(one for one in refusals if one.by_vllm), *compatibility.without_settings)
    by_rules = tuple(one for one in refusals if not one.by_vllm)
    compatibility = replace(compatibility, refusals=by_vllm, overridden=by_rules)
    return _judge(question, compatibility, catalog)


def judge_for_user(question: FitQuestion, allow: Collection[str], catalog: Catalog) -> Judgement:
    """Judge as the operator would; `allow` are the rules that the user overrides."""
    return _judge(question, _check_compatibility(question, allow, catalog), catalog)


def _judge(question: FitQuestion, compatibility: Compatibility, catalog: Catalog) -> Judgement:
    verdict = answer(question, catalog)
    overridden = [f"{one.message} (rule {one.rule})" for one in compatibility.overridden]
    release, shape = catalog.release(question.options.vllm_version), question.checkpoint.shape
    notes = (*overridden, *([release.note] if release.note else ()), *compatibility.warnings)
    judgement = Judgement(question, verdict, settings=compatibility.settings, notes=notes)
    if isinstance(verdict, IllegalParallelism):
        return replace(judgement, refusal=verdict.message, rule=verdict.rule)
    too_long = tell_too_long(shape, question.options, release)
    if too_long is not None:
        return replace(judgement, refusal=too_long, rule=_LENGTH)
    if compatibility.refusals:
        # A refusal of vLLM itself takes precedence.
        first = min(compatibility.refusals, key=lambda one: not one.by_vllm)
        return replace(judgement, refusal=first.message, rule=first.rule, by_vllm=first.by_vllm)
    return judgement


def _check_compatibility(
    question: FitQuestion, allow: Collection[str], catalog: Catalog
) -> Compatibility:
    return judge_compatibility(
        question.checkpoint, question.accelerator, question.options, allow, catalog
    )
