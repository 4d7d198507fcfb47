"""Compatibility rules: what does not run where, though it may fit."""

from enum import StrEnum

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT


class RuleAction(StrEnum):
    """What a rule does to a pool it applies to."""

    REJECT = "reject"
    WARN = "warn"


@dataclass(frozen=True, slots=True, config=STRICT)
class CompatibilityRule:
    """Applies when every condition that is given holds; None is no condition.

    `archs` are shell patterns, `since` and `until` vLLM releases, both included. `message` follows
    the accelerator's name in a sentence.
    """

    name: str
    action: RuleAction
    overridable: bool
    message: str
    evidence: str
    vendors: frozenset[str] | None = None
    archs: tuple[str, ...] | None = None
    accelerators: frozenset[str] | None = None
    methods: frozenset[str] | None = None
    weight_formats: frozenset[str] | None = None
    kv_cache_dtypes: frozenset[str] | None = None
    architectures: frozenset[str] | None = None
    desc_act: bool | None = None
    latent_attention: bool | None = None
    since: str | None = None
    until: str | None = None
