"""Compatibility rules: what does not run where, or only in a certain way, though it may fit."""

from collections.abc import Collection, Mapping
from datetime import date
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints
from pydantic.dataclasses import dataclass

from tonnage.catalog.architectures import ServedStatus
from tonnage.catalog.engine import parse_version
from tonnage.catalog.model import STRICT
from tonnage.catalog.quantization_methods import MethodStatus

RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]{2,62}$")]
Release = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]


class Outcome(StrEnum):
    """What a rule does to a model on a device. What no rule speaks of is allowed."""

    REFUSED = "refused"
    WARNED = "warned"
    SETTING = "setting"


@dataclass(frozen=True, slots=True, config=STRICT)
class Settings:
    """What the server has to be started with: environment variables, arguments, an image.

    `image` is one of the vendor's that carries what the planned release lacks.
    """

    env: Mapping[str, str] = Field(default_factory=dict)
    args: tuple[str, ...] = ()
    image: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be set."""
        return not (self.env or self.args or self.image)

    def are_among(self, stated: Collection[str]) -> bool:
        """Whether arguments and variables (NAME=value) set all of it; an image they cannot set."""
        wanted = (*self.args, *(f"{name}={value}" for name, value in self.env.items()))
        return self.image is None and all(each in stated for each in wanted)

    def joined(self, other: "Settings") -> "Settings":
        """Both; where they contradict each other the first one stands."""
        new = tuple(argument for argument in other.args if argument not in self.args)
        return Settings({**other.env, **self.env}, self.args + new, self.image or other.image)


@dataclass(frozen=True, slots=True, config=STRICT)
class Conditions:
    """When a rule applies: every condition that is given holds; None is no condition.

    `archs` are shell patterns of the device's architecture, `below_capability` a CUDA compute
    capability (90 is sm_90; never true of other architectures), `since` and `until` vLLM releases,
    both included. The others speak of the model and of how it is to be run.
    """

    archs: tuple[str, ...] | None = None
    except_archs: tuple[str, ...] | None = None
    below_capability: int | None = None
    accelerators: frozenset[str] | None = None
    unsupported_accelerator: bool | None = None
    since: Release | None = None
    until: Release | None = None
    methods: frozenset[str] | None = None
    except_methods: frozenset[str] | None = None
    method_status: MethodStatus | None = None
    weight_formats: frozenset[str] | None = None
    activations: frozenset[str] | None = None
    desc_act: bool | None = None
    kv_cache_dtypes: frozenset[str] | None = None
    architectures: frozenset[str] | None = None
    except_architectures: frozenset[str] | None = None
    served: ServedStatus | None = None
    latent_attention: bool | None = None
    sparse_attention: bool | None = None
    experts: bool | None = None

    def covers_release(self, version: str) -> bool:
        """Whether the rule speaks of that vLLM release."""
        numbers = parse_version(version)
        begun = self.since is None or parse_version(self.since) <= numbers
        return begun and (self.until is None or numbers <= parse_version(self.until))


@dataclass(frozen=True, slots=True, config=STRICT)
class CompatibilityRule:
    """What happens when the conditions hold, and how that is known.

    `message` and `instead` are sentences with the placeholders of fit.rule_matching.fill; `instead`
    says what would work, `by_vllm` that vLLM itself does not start, or not without the settings:
    other refusals are what is known of the hardware, or that nobody has been seen to run it.
    `evidence` names files of vLLM, issues and pages that were read on `checked`. From release
    `expires` on the rule has to be looked at again: it still applies, and says that it is older
    than the engine.
    """

    name: RuleName
    outcome: Outcome
    when: Conditions
    message: str
    evidence: Annotated[tuple[str, ...], Field(min_length=1)]
    checked: date
    expires: Release
    by_vllm: bool = False
    instead: str | None = None
    settings: Settings = Field(default_factory=Settings)

    def __post_init__(self) -> None:
        """Raises ValueError where the outcome lacks what belongs to it."""
        if (self.outcome is Outcome.REFUSED) != (self.instead is not None):
            raise ValueError(f"rule {self.name}: `instead` belongs to what is refused")
        if (self.outcome is Outcome.SETTING) == self.settings.is_empty:
            raise ValueError(f"rule {self.name}: `settings` belong to outcome setting")
        if self.when == Conditions():
            raise ValueError(f"rule {self.name}: expected at least one condition")

    def is_expired(self, version: str) -> bool:
        """Whether the rule is older than that vLLM release."""
        return parse_version(version) >= parse_version(self.expires)
