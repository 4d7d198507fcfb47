"""Which engine runs a model on a device, where several are judged.

Algorithm. Of the engines that fit, a rule of the catalogue chooses, and without a rule the default
engine is taken. Where that one does not fit or lacks the model class, another one is taken; but not
where a compatibility rule refuses it: those rules know the default engine alone, and what it cannot
load others may not load either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.api.text import truncate
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine_choice import EngineRule, load_engine_rules
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.legality.rule_matching import covers, describe_subject, fill
from tonnage.fit.model import EngineOptions

_MAX_REASON_BYTES: Final = 180
"""Bytes of the reason against one engine in a message that has those against all."""

_UNPROVEN: Final = "no rule says that it runs what the default engine does not; name it to try"


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """Whether an engine runs a model on a device, and in `message` how, or why not. `by_rule`: a
    compatibility rule refuses it, other than for the model class."""

    engine: str
    fits: bool
    message: str
    by_rule: bool = False


@dataclass(frozen=True, slots=True)
class Contest:
    """A model on a device, and the answers of the engines that may run it, the default one first.
    `options` are those of the first that fits, `releases` the planned release of each that does."""

    shape: ModelShape
    accelerator: Accelerator
    options: EngineOptions
    releases: Mapping[str, str]
    answers: Sequence[EngineAnswer]


def choose_engine(contest: Contest, default: str, catalog: Catalog) -> tuple[str, str] | None:
    """The engine for new replicas, and why; None where none is known to run the model."""
    fitting = [answer.engine for answer in contest.answers if answer.fits]
    if not fitting:
        return None
    ruled = choose_by_rules(
        contest.shape, contest.accelerator, contest.options, contest.releases, catalog
    )
    if ruled is not None:
        return ruled
    if default in fitting and len(fitting) > 1:
        return default, f"{default} is the default where no rule names another"
    if any(answer.engine == default and answer.by_rule for answer in contest.answers):
        return None
    return fitting[0], join_reasons(contest.answers)


def join_reasons(answers: Sequence[EngineAnswer], *, unproven: bool = False) -> str:
    """The engines that do not run the model, with the reasons; those that may, too, where that is
    `unproven`."""
    reasons = [
        (answer.engine, f"{answer.message}, but {_UNPROVEN}" if answer.fits else answer.message)
        for answer in answers
        if unproven or not answer.fits
    ]
    return "; ".join(f"{name}: {truncate(why, _MAX_REASON_BYTES)}" for name, why in reasons)


def choose_by_rules(
    shape: ModelShape,
    accelerator: Accelerator,
    options: EngineOptions,
    releases: Mapping[str, str],
    catalog: Catalog,
) -> tuple[str, str] | None:
    """The engine of the first rule that covers the model on the device, and why; None without one.

    `releases` has the planned release of each engine that may be taken.
    """
    subject = describe_subject(shape, accelerator, options, catalog)

    def applies(rule: EngineRule) -> bool:
        release = releases.get(rule.engine)
        return release is not None and rule.covers_release(release) and covers(rule.when, subject)

    rule = next(filter(applies, load_engine_rules().rules), None)
    if rule is None:
        return None
    return rule.engine, f"{fill(rule.message, subject, catalog)} (rule {rule.name})"


def explain_missing_class(engine: str, release: str, shape: ModelShape) -> str | None:
    """Why the engine is not taken for the class of the model, None where it has code for it."""
    if load_engine_rules().has_class(engine, shape.architecture):
        return None
    return f"{engine} {release} has no implementation of {shape.architecture}"
