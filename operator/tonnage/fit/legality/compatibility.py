"""Applies the catalogue's compatibility rules to one model on one device."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.rules import CompatibilityRule, Outcome, Settings
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.legality.rule_matching import Subject, covers, describe_subject, fill
from tonnage.fit.model import EngineOptions


@dataclass(frozen=True, slots=True)
class Incompatible:
    """A rule that forbids the combination: its stable name and a sentence with the reason.

    `instead` is a sentence on what would work, empty where a setting does. `by_engine`: vLLM itself
    does not start. Other refusals follow from the hardware, or no run of the combination is known.
    `model_class`: vLLM does not serve the model's class on any device.
    """

    rule: str
    message: str
    instead: str
    by_engine: bool = False
    model_class: bool = False


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The result of all rules for a model on a device.

    `refusals` forbid the combination, `overridden` are those that the user named in
    `spec.placement.allow`. `warnings` are sentences; `unverified` are the rules with outcome
    warned that the user did not allow: no run of the model is known there, or only a worse one. The
    server starts with `settings`, and `without_settings` are the reasons why vLLM does not start
    without them.
    """

    refusals: tuple[Incompatible, ...]
    overridden: tuple[Incompatible, ...]
    warnings: tuple[str, ...]
    settings: Settings
    without_settings: tuple[Incompatible, ...] = ()
    unverified: tuple[str, ...] = ()


def judge_compatibility(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    options: EngineOptions,
    allow: Collection[str],
    catalog: Catalog,
) -> Compatibility:
    """Applies every rule that covers this model on this accelerator.

    Rules named in `allow` refuse nothing and leave nothing unverified. Raises ValueError for an
    invalid vLLM version.
    """
    subject = describe_subject(checkpoint.shape, accelerator, options, catalog)
    rules = [rule for rule in catalog.rules if covers(rule.when, subject)]
    refusals = [_refuse(rule, subject, catalog) for rule in _select(Outcome.REFUSED, rules)]
    setting_rules = _select(Outcome.SETTING, rules)
    warned_rules = _select(Outcome.WARNED, rules)
    return Compatibility(
        refusals=tuple(refusal for refusal in refusals if refusal.rule not in allow),
        overridden=tuple(refusal for refusal in refusals if refusal.rule in allow),
        warnings=tuple(
            _format_message(rule, subject, catalog) for rule in (*setting_rules, *warned_rules)
        ),
        settings=_join_settings(setting_rules),
        without_settings=tuple(
            Incompatible(rule.name, _format_message(rule, subject, catalog), "", by_engine=True)
            for rule in setting_rules
            if rule.by_vllm and not rule.settings.are_among(options.stated)
        ),
        unverified=tuple(rule.name for rule in warned_rules if rule.name not in allow),
    )


def check_compatibility(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    options: EngineOptions,
    allow: Collection[str],
    catalog: Catalog,
) -> Incompatible | None:
    """The first rule that forbids this model on this accelerator, None when none does.

    It skips rules named in `allow`. Raises ValueError for an invalid vLLM version.
    """
    refusals = judge_compatibility(checkpoint, accelerator, options, allow, catalog).refusals
    return refusals[0] if refusals else None


def _select(outcome: Outcome, rules: Iterable[CompatibilityRule]) -> Sequence[CompatibilityRule]:
    return [rule for rule in rules if rule.outcome is outcome]


def _refuse(rule: CompatibilityRule, subject: Subject, catalog: Catalog) -> Incompatible:
    instead = fill(rule.instead or "", subject, catalog)
    message = f"{_format_message(rule, subject, catalog)}; {instead}"
    return Incompatible(rule.name, message, instead, rule.by_vllm, rule.concerns_model_class)


def _format_message(rule: CompatibilityRule, subject: Subject, catalog: Catalog) -> str:
    """The rule's sentence, with a note if the vLLM release is newer than the rule."""
    message = fill(rule.message, subject, catalog)
    if not rule.is_expired(subject.version):
        return message
    return (
        f"{message} (checked on {rule.checked}; vLLM {subject.version} is newer than what this rule"
        " was made for)"
    )


def _join_settings(rules: Iterable[CompatibilityRule]) -> Settings:
    settings = Settings()
    for rule in rules:
        settings = settings.joined(rule.settings)
    return settings
