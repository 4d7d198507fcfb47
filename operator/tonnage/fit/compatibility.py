"""What runs on a device, or only in a certain way: the catalogue's rules applied to one model."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.rules import CompatibilityRule, Outcome, Settings
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions
from tonnage.fit.rule_matching import Subject, covers, describe_subject, fill


@dataclass(frozen=True, slots=True)
class Incompatible:
    """A rule that forbids the combination: its stable name and a sentence why.

    `instead` is a sentence on what would work, empty where a setting does. `by_vllm` says that vLLM
    itself does not start; a refusal without it is what Tonnage knows of the hardware, or that
    nobody has seen it run.
    """

    rule: str
    message: str
    instead: str
    by_vllm: bool = False


@dataclass(frozen=True, slots=True)
class Compatibility:
    """What all rules together make of a model on a device.

    `refusals` stand in its way, `overridden` are those that the user named in
    `spec.placement.allow`; `warnings` are sentences, `settings` what the server is started with,
    and `without_settings` why vLLM itself would not start without them.
    """

    refusals: tuple[Incompatible, ...]
    overridden: tuple[Incompatible, ...]
    warnings: tuple[str, ...]
    settings: Settings
    without_settings: tuple[Incompatible, ...] = ()


def judge_compatibility(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    options: EngineOptions,
    allow: Collection[str],
    catalog: Catalog,
) -> Compatibility:
    """Every rule that speaks of this model on this accelerator.

    Rules named in `allow` refuse nothing. Raises ValueError for a vLLM version that is none.
    """
    subject = describe_subject(checkpoint.shape, accelerator, options, catalog)
    found = [rule for rule in catalog.rules if covers(rule.when, subject)]
    refused = [_refusal(rule, subject, catalog) for rule in _of(Outcome.REFUSED, found)]
    setting = _of(Outcome.SETTING, found)
    noted = [*setting, *_of(Outcome.WARNED, found)]
    return Compatibility(
        refusals=tuple(refusal for refusal in refused if refusal.rule not in allow),
        overridden=tuple(refusal for refusal in refused if refusal.rule in allow),
        warnings=tuple(_tell(rule, subject, catalog) for rule in noted),
        settings=_joined(setting),
        without_settings=tuple(
            Incompatible(rule.name, _tell(rule, subject, catalog), "", by_vllm=True)
            for rule in setting
            if rule.by_vllm and not rule.settings.are_among(options.stated)
        ),
    )


def check_compatibility(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    options: EngineOptions,
    allow: Collection[str],
    catalog: Catalog,
) -> Incompatible | None:
    """The first rule that forbids this model on this accelerator, None when none does.

    Rules named in `allow` are passed over. Raises ValueError for a vLLM version that is none.
    """
    refusals = judge_compatibility(checkpoint, accelerator, options, allow, catalog).refusals
    return refusals[0] if refusals else None


def _of(outcome: Outcome, rules: Iterable[CompatibilityRule]) -> Sequence[CompatibilityRule]:
    return [rule for rule in rules if rule.outcome is outcome]


def _refusal(rule: CompatibilityRule, subject: Subject, catalog: Catalog) -> Incompatible:
    instead = fill(rule.instead or "", subject, catalog)
    message = f"{_tell(rule, subject, catalog)}; {instead}"
    return Incompatible(rule.name, message, instead, rule.by_vllm)


def _tell(rule: CompatibilityRule, subject: Subject, catalog: Catalog) -> str:
    """The rule's sentence, and that the engine is newer than what is known of it."""
    told = fill(rule.message, subject, catalog)
    if not rule.is_expired(subject.version):
        return told
    return (
        f"{told} (checked on {rule.checked}; vLLM {subject.version} is newer than what this rule"
        " was made for)"
    )


def _joined(rules: Iterable[CompatibilityRule]) -> Settings:
    settings = Settings()
    for rule in rules:
        settings = settings.joined(rule.settings)
    return settings
