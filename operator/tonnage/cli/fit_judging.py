"""The verdict on a question with all that speaks against it: memory, vLLM's checks, our rules."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.rules import Settings
from tonnage.fit.compatibility import Compatibility, judge_compatibility
from tonnage.fit.context import tell_too_long
from tonnage.fit.model import DoesNotFit, FitVerdict, IllegalParallelism, MemoryAccount
from tonnage.fit.question import FitQuestion, answer

_LENGTH: Final = "ContextLength"
"""What is named as the rule when the context is longer than the model's."""


class Outcome(StrEnum):
    """The verdict in a word, as programs read it."""

    FITS = "fits"
    DOES_NOT_FIT = "does_not_fit"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A question and its answer.

    `refusal` says why it is not started whatever the memory, `rule` names what said so, `by_vllm`
    whether that is vLLM itself. `settings` are what the server has to be started with, `notes` what
    a user should know beside that.
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
        """The verdict in a word."""
        if self.refusal is not None:
            return Outcome.REFUSED
        return Outcome.DOES_NOT_FIT if isinstance(self.verdict, DoesNotFit) else Outcome.FITS

    @property
    def account(self) -> MemoryAccount | None:
        """Where the bytes go; None for a layout that vLLM refuses."""
        return None if isinstance(self.verdict, IllegalParallelism) else self.verdict.account


def judge_for_vllm(question: FitQuestion, catalog: Catalog) -> Judgement:
    """What vLLM itself would do: what it does not refuse by itself is a note and no refusal."""
    judged = _compatibility(question, (), catalog)
    refused = (*(one for one in judged.refusals if one.by_vllm), *judged.without_settings)
    doubted = tuple(one for one in judged.refusals if not one.by_vllm)
    return _judge(question, replace(judged, refusals=refused, overridden=doubted), catalog)


def judge_for_user(question: FitQuestion, allow: Collection[str], catalog: Catalog) -> Judgement:
    """What the operator would decide; `allow` are the rules that the user overrides."""
    return _judge(question, _compatibility(question, allow, catalog), catalog)


def _judge(question: FitQuestion, judged: Compatibility, catalog: Catalog) -> Judgement:
    verdict = answer(question, catalog)
    overridden = [f"{one.message} (rule {one.rule})" for one in judged.overridden]
    release, shape = catalog.release(question.options.vllm_version), question.checkpoint.shape
    notes = (*overridden, *([release.note] if release.note else ()), *judged.warnings)
    judgement = Judgement(question, verdict, settings=judged.settings, notes=notes)
    if isinstance(verdict, IllegalParallelism):
        return replace(judgement, refusal=verdict.message, rule=verdict.rule)
    too_long = tell_too_long(shape, question.options, release)
    if too_long is not None:
        return replace(judgement, refusal=too_long, rule=_LENGTH)
    if judged.refusals:
        # What vLLM itself refuses is told first.
        first = min(judged.refusals, key=lambda one: not one.by_vllm)
        return replace(judgement, refusal=first.message, rule=first.rule, by_vllm=first.by_vllm)
    return judgement


def _compatibility(
    question: FitQuestion, allow: Collection[str], catalog: Catalog
) -> Compatibility:
    return judge_compatibility(
        question.checkpoint, question.accelerator, question.options, allow, catalog
    )
